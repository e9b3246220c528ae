"""Who may import whom, how long a file may be, and that generated code is what is generated."""

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("router", "shard", "kernels", "protos", "telemetry")
MAX_LINES = 400
GENERATED = "_pb2"

FORBIDDEN = {
    "router": {"shard", "kernels", "torch", "triton", "transformers", "safetensors", "numpy"},
    "shard": {"router"},
    "kernels": {"router", "shard", "protos"},
    "telemetry": {"router", "shard", "kernels", "protos"},
}
PURE = "router/scheduling"
IMPURE = {"asyncio", "datetime", "logging", "os", "random", "secrets", "socket", "subprocess", "threading", "time"}
KNOW_THE_WIRE = {"router/fleet/wire.py", "router/fleet/client.py", "shard/wire.py", "shard/server.py",
                 "router/rpc/wire.py", "router/rpc/service.py", "router/rpc/server.py"}
KNOW_THE_ENVIRONMENT = {"router/config.py", "shard/config.py", "kernels/dispatch.py", "kernels/native.py",
                        "kernels/build.py",  # the compiler's name
                        "kernels/tuning.py",  # where caches are
                        "shard/links.py"}  # the last sets a variable, for gloo has no other way in

KNOW_OPENTELEMETRY = {"router/tracing.py", "router/generative_ai.py", "shard/tracing.py", "telemetry/export.py"}


def source_files(*folders: str) -> list[str]:
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(str(path.relative_to(ROOT)) for path in files if GENERATED not in path.name)


def imports(file: str) -> Iterator[str]:
    """Full names of the modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            assert node.module
            yield node.module


def top_levels(file: str) -> set[str]:
    return {name.partition(".")[0] for name in imports(file)}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_direction_of_imports(package):
    files = source_files(package)
    assert files
    assert {file: found for file in files if (found := top_levels(file) & FORBIDDEN[package])} == {}


def test_scheduling_is_pure():
    allowed = sys.stdlib_module_names - IMPURE
    strangers = {file: [name for name in imports(file)
                        if name.partition(".")[0] not in allowed and not name.startswith("router.scheduling")]
                 for file in source_files(PURE)}
    assert strangers
    assert {file: names for file, names in strangers.items() if names} == {}


def test_few_files_know_the_wire():
    assert {file for file in source_files(*PACKAGES) if "protos" in top_levels(file)} <= KNOW_THE_WIRE


def test_few_files_know_opentelemetry():
    """Others import these in functions, where an endpoint is set."""
    assert {file for file in source_files(*PACKAGES) if "opentelemetry" in top_levels(file)} == KNOW_OPENTELEMETRY


def test_few_files_know_the_environment():
    found = {file for file in source_files(*PACKAGES) for node in ast.walk(ast.parse((ROOT / file).read_text()))
             if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")}
    assert found <= KNOW_THE_ENVIRONMENT


@pytest.mark.parametrize(("module", "absent"), [
    ("router.app", ("torch", "transformers", "triton", "numpy")),
    ("router.__main__", ("grpc_health.v1", "grpc_reflection.v1alpha", "router.rpc", "protos.penstock_pb2")),
    ("router.launcher", ("torch", "transformers", "numpy", "grpc", "aiohttp", "huggingface_hub", "tokenizers",
                         "opentelemetry")),
])
def test_import_does_not_bring_what_is_heavy(module, absent):
    code = f"import sys, {module}; print(sorted(set({absent!r}) & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("[]\n", "")


@pytest.mark.parametrize("module", ["router.__main__", "shard.run"])
def test_who_does_not_trace_has_no_opentelemetry(module):
    code = f"import sys, {module}; print(sorted({{'opentelemetry', 'telemetry'}} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_kernels_package_is_empty():
    """Hugging Face has a package of this name, so others import it to see whether it is theirs."""
    assert (ROOT / "kernels/__init__.py").read_bytes() == b""


@pytest.mark.parametrize("folder", [*PACKAGES, "tests"])
def test_every_folder_is_a_package(folder):
    folders = {path.parent for path in (ROOT / folder).rglob("*.py")}
    assert [str(path) for path in folders if not (path / "__init__.py").exists()] == []


def test_files_are_short():
    lengths = {file: len((ROOT / file).read_text().splitlines()) for file in source_files(*PACKAGES, "tests")}
    assert {file: length for file, length in lengths.items() if length > MAX_LINES} == {}


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="grpcio-tools is not installed")
def test_generated_code_is_fresh(tmp_path):
    protos = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "protos").glob("*.proto"))
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}",
                    f"--pyi_out={tmp_path}", f"--grpc_python_out={tmp_path}", *protos], cwd=ROOT, check=True)
    fresh = {path.name: path.read_text() for path in (tmp_path / "protos").iterdir()}
    assert fresh == {path.name: path.read_text() for path in (ROOT / "protos").glob(f"*{GENERATED}*")}
    assert len(fresh) == 3 * len(protos)
