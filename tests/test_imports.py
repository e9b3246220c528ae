"""Who may import whom, how long a file may be, and that generated code is what is generated."""

import ast
import importlib.util
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.sources import GENERATED, PACKAGES, source, source_files

MAX_LINES = 400

FORBIDDEN = {
    "launcher": {"penstock.router.api", "penstock.router.engine", "penstock.router.generation", "penstock.router.rpc",
                 "penstock.router.scheduling", "penstock.router.app", "penstock.router.__main__", "penstock.shard",
                 "penstock.kernels", "penstock.bench", "penstock.quantization", "penstock.cluster", "penstock.offline",
                 "torch", "triton", "transformers", "safetensors", "numpy"},
    "checkpoints": {"penstock.launcher", "penstock.router", "penstock.shard", "penstock.kernels", "penstock.protos",
                    "torch", "transformers"},
    "router": {"penstock.launcher", "penstock.shard", "penstock.kernels", "penstock.bench", "penstock.quantization",
               "penstock.cluster", "penstock.offline",
               "torch", "triton", "transformers", "safetensors", "numpy"},
    "shard": {"penstock.router", "penstock.launcher", "penstock.bench", "penstock.quantization", "penstock.cluster",
              "penstock.offline"},
    "kernels": {"penstock.router", "penstock.shard", "penstock.contract", "penstock.protos", "penstock.bench",
                "penstock.quantization", "penstock.cluster"},
    "quantization": {"penstock.router", "penstock.bench", "penstock.cluster", "transformers"},
    "client": {"penstock.router", "penstock.shard", "penstock.kernels", "penstock.protos", "penstock.bench", "torch",
               "penstock.cluster"},
    "offline": {"penstock.router.api", "penstock.router.rpc", "penstock.router.app", "penstock.router.__main__",
                "penstock.router.front", "penstock.shard", "penstock.kernels", "penstock.bench", "penstock.protos",
                "penstock.quantization", "penstock.cluster", "torch", "numpy", "transformers", "aiohttp", "grpc"},
    "telemetry": {"penstock.router", "penstock.shard", "penstock.kernels", "penstock.protos", "penstock.bench"},
    "contract": {"penstock.router", "penstock.shard", "penstock.kernels", "penstock.launcher", "torch", "numpy"},
}
"""By package, the modules that none of its files may import."""

_API = {"penstock.router.api", "penstock.router.rpc", "penstock.router.app", "penstock.router.__main__"}
_ABOVE_ENGINE = {"penstock.router.generation", "penstock.router.turns", *_API}
ROOMS = {
    "router/scheduling": {"penstock.router.engine", "penstock.router.fleet", *_ABOVE_ENGINE},
    "router/fleet": {"penstock.router.engine", *_ABOVE_ENGINE},
    "router/text": {"penstock.router.engine", *_ABOVE_ENGINE},
    "router/grammar": {"penstock.router.engine", *_ABOVE_ENGINE},
    "router/engine": {"penstock.router.tracing", *_ABOVE_ENGINE},
    "router/metrics": _ABOVE_ENGINE,
    "router/store": {"penstock.router.engine", "penstock.router.batches", *_ABOVE_ENGINE},
    "router/chat": {"penstock.router.engine", "penstock.router.fleet", *_ABOVE_ENGINE},
    "router/generation": {"penstock.router.turns", "penstock.router.pooling", *_API},
    "router/pooling": {"penstock.router.turns", *_API},
    "router/turns": _API,
    "router/tracing": _API,
    "router/rpc": {"penstock.router.api.openai", "penstock.router.api.anthropic", "penstock.router.api.clouds"},
    "router/batches": {"penstock.router.rpc", "penstock.router.app", "penstock.router.api.tgi",
                       "penstock.router.api.clouds"},
    "router/background": {"penstock.router.rpc", "penstock.router.app", "penstock.router.api.tgi",
                          "penstock.router.api.anthropic", "penstock.router.api.clouds"},
    "router/api": {"penstock.router.rpc", "penstock.router.app", "penstock.router.batches",
                   "penstock.router.background"},
    "router/api/http": {"penstock.router.api.tgi", "penstock.router.api.openai", "penstock.router.api.responses",
                        "penstock.router.api.anthropic", "penstock.router.api.clouds",
                        "penstock.router.api.kserve"},
    "router/api/tgi": {"penstock.router.api.openai", "penstock.router.api.responses", "penstock.router.api.anthropic",
                       "penstock.router.api.clouds"},
    "router/api/openai": {"penstock.router.api.tgi", "penstock.router.api.clouds", "penstock.router.api.responses",
                          "penstock.router.api.anthropic"},
    "router/api/tei": {"penstock.router.api.tgi", "penstock.router.api.openai", "penstock.router.api.responses",
                       "penstock.router.api.anthropic", "penstock.router.api.clouds"},
    "router/api/kserve": {"penstock.router.api.tgi", "penstock.router.api.openai", "penstock.router.api.responses",
                          "penstock.router.api.anthropic", "penstock.router.api.clouds", "penstock.router.api.tei"},
    "router/api/responses": {"penstock.router.api.tgi", "penstock.router.api.anthropic", "penstock.router.api.clouds"},
    "router/api/anthropic": {"penstock.router.api.tgi", "penstock.router.api.openai", "penstock.router.api.responses",
                             "penstock.router.api.clouds"},
    "shard/communication": {"penstock.shard.execution", "penstock.shard.serving", "penstock.shard.startup",
                            "penstock.shard.models", "penstock.shard.layers"},
    "shard/weights": {"penstock.shard.execution", "penstock.shard.serving", "penstock.shard.startup",
                      "penstock.shard.models", "penstock.shard.layers"},
    "shard/adapters": {"penstock.shard.execution", "penstock.shard.serving", "penstock.shard.startup",
                       "penstock.shard.layers"},
    "shard/layers": {"penstock.shard.execution", "penstock.shard.serving", "penstock.shard.startup"},
    "shard/fallback": {"penstock.shard.execution", "penstock.shard.serving", "penstock.shard.startup"},
    "shard/models": {"penstock.shard.layers", "penstock.shard.fallback", "penstock.shard.execution",
                     "penstock.shard.serving", "penstock.shard.startup"},
    "shard/execution": {"penstock.shard.serving", "penstock.shard.startup"},
    "shard/serving": {"penstock.shard.startup"},
    "bench/load": {"penstock.router", "penstock.shard", "penstock.kernels", "penstock.protos", "penstock.bench.engine",
                   "penstock.bench.programs", "penstock.bench.server", "torch", "psutil", "transformers"},
    "bench/kernels": {"penstock.router", "penstock.shard", "penstock.protos", "penstock.bench.load"},
    "bench/gpu": {"penstock.router", "penstock.protos", "psutil", "grpc"},
}
"""The same for packages inside the router, the shard and the benchmarks."""

PURE = ("contract", "router/scheduling")
PURE_FILES = ("cluster/scaling.py", "cluster/plan.py")
IMPURE = {"asyncio", "datetime", "logging", "os", "random", "secrets", "socket", "subprocess", "threading", "time"}
KNOW_THE_WIRE = {"contract/wire.py", "router/fleet/client.py", "shard/serving/server.py",
                 "router/rpc/wire.py", "router/rpc/service.py", "router/rpc/server.py", "router/rpc/tei.py",
                 "router/rpc/tei_answers.py", "router/rpc/kserve.py", "router/rpc/kserve_wire.py",
                 "router/rpc/tei_ranks.py", "router/rpc/tei_wire.py"}
KNOW_THE_ENVIRONMENT = {"launcher/otel.py", "telemetry/export.py",  # OpenTelemetry's standard variables
                        "launcher/foreign_models.py",  # the keys for other servers
                        "system/child_environment.py", "router/config.py", "launcher/config.py",
                        "shard/config.py", "kernels/dispatch.py",
                        "kernels/native.py",
                        "kernels/build.py",  # the compiler's name
                        "router/api/http/vendored.py",  # npm's name of a registry
                        "kernels/tuning.py", "system/user_cache.py",  # where caches are
                        "shard/communication/links.py", "shard/devices/allocation.py", "cluster/child.py"}
"""The last three set variables: gloo and torch's allocator have no other way in, and children are known by theirs."""

KNOW_OPENTELEMETRY = {"router/tracing/middleware.py", "router/tracing/generative_ai.py", "shard/serving/tracing.py",
                      "telemetry/export.py"}


def is_below(name: str, packages: set[str]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def imported(file: str, packages: set[str]) -> set[str]:
    """What a file imports from these packages."""
    return {name for name in source(file).imports if is_below(name, packages)}


@pytest.mark.parametrize(("package", "forbidden"), [*FORBIDDEN.items(), *ROOMS.items()])
def test_direction_of_imports(package, forbidden):
    files = source_files(package)
    assert files
    assert {file: found for file in files if (found := imported(file, forbidden))} == {}


def test_all_that_is_ours_is_imported_from_one_namespace():
    ours = {"router", "shard", "kernels", "protos", "telemetry", "client", "bench"}
    other = re.compile(rf"^\s*(?:from|import) (?:\w+, )*(?:{'|'.join(ours)})\b", re.MULTILINE)
    # To parse all files takes seconds.
    files = [file for file in source_files(*PACKAGES, "tests") if other.search((ROOT / file).read_text())]
    assert {file: found for file in files if (found := imported(file, ours))} == {}


def test_nothing_that_users_get_imports_tests():
    assert {file: found for file in source_files(*PACKAGES) if (found := imported(file, {"tests"}))} == {}


MAY_IMPORT = re.compile(r"; (?:may\s+import|imports)\s([a-z_., \n]+)\.$")
NOTHING = {"the standard library only", "none of our packages"}


def stated(package: str) -> set[str] | None:
    """Reads what a package may import from its docstring, "…; may import config, api.http and protos.", as full names.

    Returns None if it doesn't say.
    """
    doc = MAY_IMPORT.search(ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or "")
    if doc is None:
        return None
    words = [] if doc[1] in NOTHING else re.split(r",\s+|\s+and\s+", doc[1])
    top = package.partition("/")[0]
    return {f"penstock.{word}" if word.partition(".")[0] in PACKAGES else f"penstock.{top}.{word}" for word in words}


ROOM_FOLDERS = ["launcher", "kernels", "contract", "checkpoints", "protos", "telemetry", "system", "client", "cluster",
                "offline",
                *(file.removesuffix("/__init__.py") for file in source_files("checkpoints", "router", "shard", "bench")
                  if file.count("/") > 1 and file.endswith("/__init__.py"))]


@pytest.mark.parametrize("package", ROOM_FOLDERS)
def test_a_package_imports_what_its_docstring_says(package):
    allowed = stated(package)
    assert allowed is not None
    own = f"penstock.{package.replace('/', '.')}"
    strangers = {file: found for file in source_files(package)
                 if (found := {name for name in imported(file, {f"penstock.{name}" for name in PACKAGES})
                               if not is_below(name, {own, *allowed})})}
    assert strangers == {}
    forbidden = set().union(*(names for room, names in {**FORBIDDEN, **ROOMS}.items()
                              if f"{package}/".startswith(f"{room}/")))
    assert {name for name in allowed if is_below(name, forbidden)} == set()


def room_of(file: str) -> str:
    """Returns the folder of a file, or the file itself where it stands beside folders."""
    folder = file.rpartition("/")[0]
    return file if any(other.startswith(f"{folder}/") and other.count("/") > file.count("/")
                       for other in source_files(folder.partition("/")[0])) else folder


@pytest.mark.parametrize("name_of", [str, room_of], ids=["files", "rooms"])
def test_no_imports_go_in_a_circle(name_of):
    """Imports for types alone count, too."""
    modules = {f"penstock.{file.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}": file
               for file in source_files(*PACKAGES)}
    graph: dict[str, set[str]] = {}
    for file in modules.values():
        found = {modules.get(name) or modules.get(name.rpartition(".")[0]) for name in source(file).imports} - {None}
        graph.setdefault(name_of(file), set()).update(map(name_of, found))
    for name, others in graph.items():
        others.discard(name)
    assert sum(map(len, graph.values())) > 300
    TopologicalSorter(graph).prepare()  # raises an error that names the circle


def test_scheduling_and_the_contract_are_pure():
    allowed, ours = sys.stdlib_module_names - IMPURE, {"penstock.contract", "penstock.router.scheduling"}
    strangers = {file: [name for name in source(file).imports if name.partition(".")[0] not in allowed
                        and (not is_below(name, ours) or is_below(name, {"penstock.contract.wire"}))]
                 for file in source_files(*PURE) if file != "contract/wire.py"}
    assert {file: names for file, names in strangers.items() if names} == {}


def test_the_decisions_about_groups_are_pure():
    allowed = sys.stdlib_module_names - IMPURE
    ours = {f"penstock.cluster.{name}" for name in ("scaling", "plan", "reports", "config")}
    strangers = {file: [name for name in source(file).imports
                        if name.partition(".")[0] not in allowed and not is_below(name, ours)] for file in PURE_FILES}
    assert {file: names for file, names in strangers.items() if names} == {}


def test_few_files_know_ray():
    """The keeper and the hosts run in Ray's processes; commands import it once they need it."""
    assert {file for file in source_files(*PACKAGES) if imported(file, {"ray"})} == {
        "cluster/cli.py", "cluster/hosts.py", "cluster/keeper.py", "cluster/places.py"}


def test_few_files_know_the_wire():
    served = [name for name in PACKAGES if name != "bench"]
    assert {file for file in source_files(*served) if imported(file, {"penstock.protos"})} <= KNOW_THE_WIRE


def test_few_files_know_opentelemetry():
    """Others import these in functions, where an endpoint is set."""
    assert {file for file in source_files(*PACKAGES) if imported(file, {"opentelemetry"})} == KNOW_OPENTELEMETRY


def test_few_files_know_the_environment():
    served = [name for name in PACKAGES if name != "bench"]
    found = {file for file in source_files(*served) if source(file).attributes & {"environ", "getenv"}}
    assert found <= KNOW_THE_ENVIRONMENT


TRACING = ("opentelemetry", "penstock.telemetry")
"""Brought only where an endpoint is set."""
DATABASES = ("sqlalchemy", "alembic", "asyncpg", "aiosqlite", "redis")
"""Brought only where there is a store, or a cache of answers."""


HEAVY = ("pydantic", "click", "aiohttp", "grpc", "tokenizers", "tqdm", "torch", "numpy",
         "penstock.launcher", "penstock.router")


@pytest.mark.parametrize("absent", [
    {"offline.llm": ("asyncio", *HEAVY), "offline.async_llm": HEAVY,
     "client": ("torch", "numpy", "grpc", "aiohttp", "transformers", "penstock.router"),
     "bench.cli": ("torch", "matplotlib", "transformers", "grpc", "aiohttp", "psutil"),
     "bench.load.command": ("torch", "matplotlib", "transformers", "grpc", "psutil"),
     "offline.model": ("torch", "numpy", "transformers", "penstock.router.api", "penstock.shard")},
    {"launcher.entry": ("asyncio", "click", "logging", "pydantic", "penstock.router.config", "penstock.launcher.launch",
                        "penstock.launcher.cli"),
     "launcher.launch": ("torch", "transformers", "numpy", "grpc", "aiohttp", "huggingface_hub", "tokenizers",
                         "opentelemetry"),
     "launcher.cli": ("torch", "matplotlib", "transformers", "numpy", "grpc", "aiohttp", "penstock.bench",
                      "penstock.cluster"),
     "cluster.cli": ("torch", "transformers", "numpy", "grpc", "aiohttp", "ray"),
     "router.app": ("torch", "transformers", "triton", "numpy", *DATABASES),
     "router.__main__": (*DATABASES, "grpc_health.v1", "grpc_reflection.v1alpha", "penstock.router.rpc",
                         "penstock.protos.penstock_pb2", *TRACING),
     "shard.startup.run": TRACING}], ids=["programs", "servers"])
def test_import_does_not_bring_what_is_heavy(absent):
    """One process imports all, the lightest first: what it must not have, no later one has brought."""
    looks = [f"import penstock.{module}; print({module!r}, sorted(set({names!r}) & set(sys.modules)))"
             for module, names in absent.items()]
    run = subprocess.run([sys.executable, "-c", "\n".join(["import sys", *looks])], cwd=ROOT, capture_output=True,
                         text=True, check=False)
    assert (run.stdout.splitlines(), run.stderr) == ([f"{module} []" for module in absent], "")


@pytest.mark.parametrize("folder", [*PACKAGES, "tests"])
def test_every_folder_is_a_package(folder):
    folders = {path.parent for path in (ROOT / folder).rglob("*.py")}
    assert [str(path) for path in folders if not (path / "__init__.py").exists()] == []


def test_every_package_says_what_it_is():
    packages = [file for file in source_files(*PACKAGES) if file.endswith("__init__.py")]
    assert [file for file in packages if not ast.get_docstring(ast.parse((ROOT / file).read_text()))] == []


def test_the_namespace_links_to_every_package():
    links = {path.name: path.readlink() for path in (ROOT / "penstock").iterdir() if path.is_symlink()}
    assert links == {name: Path("..") / name for name in PACKAGES if name != "penstock"}


def test_files_are_short():
    lengths = {file: len((ROOT / file).read_text().splitlines()) for file in source_files(*PACKAGES, "tests")}
    assert {file: length for file, length in lengths.items() if length > MAX_LINES} == {}


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="grpcio-tools is not installed")
def test_generated_code_is_fresh(tmp_path):
    protos = sorted(f"penstock/protos/{path.name}" for path in (ROOT / "protos").glob("*.proto"))
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}",
                    f"--pyi_out={tmp_path}", *protos], cwd=ROOT, check=True)
    fresh = {path.name: path.read_text() for path in (tmp_path / "penstock/protos").iterdir()}
    assert fresh == {path.name: path.read_text() for path in (ROOT / "protos").glob(f"*{GENERATED}*")}
    assert len(fresh) == 2 * len(protos)
