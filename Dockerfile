# Penstock's image, which takes the place of Text Generation Inference's: port 80, models in /data, the launcher as
# entry point, and without arguments the demo model.
#
#   docker build -t penstock --build-arg PIP_TORCH_ARGS="--index-url URL" .     for processors (see below)
#   docker build -t penstock:cuda --build-arg VARIANT=cuda .                    for NVIDIA's GPUs
#   docker build -t penstock:sagemaker --target sagemaker --build-arg … .       for Amazon SageMaker, either of them
#
# Nothing here needs BuildKit. torch's build for GPUs brings CUDA, so the base is the same and the host has the driver.

ARG BASE_IMAGE=debian:bookworm-20260824-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171
# What the stages that build start from: an image with more certificates or settings of pip, where a network needs them.
ARG BUILD_IMAGE=${BASE_IMAGE}

FROM ${BUILD_IMAGE} AS tools
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates g++ python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/tools

FROM tools AS kernels
COPY kernels/build.py /src/kernels/
COPY kernels/csrc /src/kernels/csrc
RUN python3 /src/kernels/build.py

FROM tools AS vendored
# A mirror takes the registry's place, if one is named.
ARG NPM_CONFIG_REGISTRY=""
COPY router/api/http/vendored.py /src/
RUN mkdir /src/static && python3 /src/vendored.py

FROM tools AS packages
ARG CYCLONEDX=cyclonedx-bom==7.5.0
RUN /opt/tools/bin/pip install --no-cache-dir "${CYCLONEDX}" && python3 -m venv --without-pip /opt/penstock
# These first, so that torch finds what it needs of them, each with the hash that is known.
COPY deploy/requirements.txt /src/
RUN /opt/tools/bin/pip --python /opt/penstock/bin/python install --no-cache-dir --no-compile --require-hashes \
        --requirement /src/requirements.txt
ARG TORCH=torch==2.13.0
# Arguments of pip for torch alone, whose build for processors PyPI does not have. Without them pip brings the one for
# GPUs: the image works on processors, too, but is five times as large.
ARG PIP_TORCH_ARGS=""
# transformers==5.23.0, say, lets models be served that are not native, and takes 120 MB.
ARG TRANSFORMERS=""
ARG VARIANT=cpu
RUN /opt/tools/bin/pip --python /opt/penstock/bin/python install --no-cache-dir --no-compile \
        ${PIP_TORCH_ARGS} "${TORCH}" \
    && if [ -n "${TRANSFORMERS}" ]; then \
        /opt/tools/bin/pip --python /opt/penstock/bin/python install --no-cache-dir --no-compile "${TRANSFORMERS}"; fi \
    && if [ "${VARIANT}" = cuda ] && ! /opt/penstock/bin/python -c 'import triton'; then \
        echo "VARIANT is cuda, but this torch is for processors: leave PIP_TORCH_ARGS out" >&2; exit 1; fi \
    && /opt/tools/bin/cyclonedx-py environment --output-reproducible --output-file /opt/penstock/sbom.json \
        /opt/penstock/bin/python
# Headers, tests, stubs, sources, maps of scripts and drivers of databases that are no store serve nobody here.
# torch_shm_manager stays, for `import torch` looks for it. Symbols for debuggers, 40 MB of them, leave the libraries that
# have them, but not numpy's, which strip breaks. torch and CUDA go where they can be a layer of their own.
RUN cd /opt/penstock/lib/python3*/site-packages \
    && rm -rf torch/include torch/share torch/test \
        sqlalchemy/testing sqlalchemy/dialects/mssql sqlalchemy/dialects/mysql sqlalchemy/dialects/oracle \
    && find aiohttp asyncpg greenlet multidict propcache sqlalchemy uvloop yaml yarl -name '*.so' \
        -exec strip --strip-debug '{}' + \
    && find torch/bin -type f ! -name torch_shm_manager -delete \
    && find . '(' -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.map' ')' -delete \
    && find . -type d -name tests -prune -exec rm -rf {} + \
    && echo /opt/penstock/own > own.pth \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x torch/testing/_internal . \
    && mkdir -p "/opt/torch$PWD" \
    && for part in torch nvidia triton; do if [ -e "$part" ]; then mv "$part" "/opt/torch$PWD"; fi; done

FROM packages AS own
COPY . /src
COPY --from=kernels /src/kernels/lib /src/kernels/lib
COPY --from=vendored /src/static /src/router/api/http/static
RUN /opt/tools/bin/pip --python /opt/penstock/bin/python install --no-cache-dir --no-compile --no-deps \
        --no-build-isolation --target /opt/own /src \
    && rm -r /opt/own/penstock/kernels/lib /opt/own/penstock/router/api/http/static/vendored \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/own \
    && mkdir -p /opt/others/penstock \
    && for part in bench checkpoints client cluster contract kernels launcher offline protos quantization shard system \
        telemetry; do mv "/opt/own/penstock/$part" /opt/others/penstock; done

FROM ${BASE_IMAGE} AS runtime
ARG VARIANT=cpu
# Triton has a C compiler make the stub that launches a kernel. curl is for the health checks of compose files.
RUN case "${VARIANT}" in cpu) compiler="" ;; cuda) compiler="gcc libc6-dev python3-dev" ;; \
        *) echo "VARIANT is cpu or cuda, not ${VARIANT}" >&2; exit 1 ;; esac \
    && apt-get update \
    && apt-get upgrade --yes \
    && apt-get install --yes --no-install-recommends ca-certificates curl python3 tini ${compiler} \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* \
    && find / -xdev -type f -perm /6000 -exec chmod a-s '{}' + \
    && install -d -m 1777 /data
COPY --from=packages /opt/torch /
COPY --from=packages /opt/penstock /opt/penstock
COPY deploy/demo_model/checkpoint /opt/penstock/demo_model
COPY --from=kernels /src/kernels/lib /opt/penstock/own/penstock/kernels/lib
COPY --from=vendored /src/static /opt/penstock/own/penstock/router/api/http/static
COPY --from=own /opt/others /opt/penstock/own
COPY --from=own /opt/own /opt/penstock/own
ENV PATH=/opt/penstock/own/bin:/opt/penstock/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    HF_HOME=/data \
    XDG_CACHE_HOME=/data/.cache \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PORT=80
ARG VERSION=0.2.0
ARG REVISION=""
LABEL org.opencontainers.image.title="Penstock" \
      org.opencontainers.image.description="Serves language models by TGI's API and OpenAI's" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Root, as in TGI's image, whose volumes only root may write. Any other user will do: --user 1000:1000.
HEALTHCHECK --interval=10s --timeout=5s --start-period=1h --retries=3 CMD ["penstock", "health"]

FROM runtime AS sagemaker
COPY deploy/sagemaker-entrypoint.sh /opt/penstock/own/bin/
EXPOSE 8080
ENTRYPOINT ["tini", "--", "sagemaker-entrypoint.sh"]

FROM runtime AS server
ENV MODEL_ID=/opt/penstock/demo_model
EXPOSE 80
ENTRYPOINT ["tini", "--", "text-generation-launcher"]
CMD ["--json-output"]
