"""What a built wheel brings: everything lies under `penstock`, and runs without the checkout and a compiler."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.bench.programs.children import free_port
from penstock.kernels import build
from penstock.router.api.http import vendored
from tests.clients.environments import python_of
from tests.e2e.server import Server, serve
from tests.paths import DEMO_MODEL, ROOT

pytestmark = pytest.mark.slow

LEFT_OUT = shutil.ignore_patterns(".*", "build", "__pycache__", "*.egg-info", "deploy", "*-sanitized.so")
PACKAGES = {"bench", "checkpoints", "client", "cluster", "contract", "kernels", "launcher", "offline", "protos",
            "quantization", "router", "shard", "system", "telemetry"}
BODY = {"inputs": "def open(path):", "parameters": {"max_new_tokens": 12}}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of sources, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=LEFT_OUT)
    _run("-m", "build", "--sdist", "--no-isolation", "--outdir", folder, cwd=folder / "source")
    [archive] = folder.glob("penstock-*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """The wheel that is built from the archive; kernels of the same sources, which are compiled already, are taken."""
    libraries = sdist / "penstock/kernels/lib"
    libraries.mkdir()
    for path in build.PATHS:
        shutil.copy(build.library(path), libraries)
    output = _run("-m", "build", "--wheel", "--no-isolation", "--outdir", sdist, cwd=sdist)
    assert "compiling the kernels" not in output
    [wheel] = sdist.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and beside it this one's packages and Hugging Face's `kernels`, but no checkout:
    a path file leads to the others' packages, and path files there, as that of the editable install, are not read."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = Path(_run_in(folder, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    others = python_of("kernels").parents[1] / site.relative_to(folder)
    _run("-m", "pip", "--python", folder / "bin/python", "install", "--quiet", "--no-deps", wheel, cwd=folder)
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{others}\n")
    return folder


def _run(*arguments: str | Path, cwd: Path) -> str:
    run = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr


def _run_in(venv: Path, *arguments: str) -> str:
    """The output of the environment's Python, from a folder with nothing in it and without a compiler on the path."""
    return subprocess.run([venv / "bin/python", *arguments], cwd=_empty(venv), env=_environment(venv),
                          capture_output=True, text=True, check=True).stdout


def _environment(venv: Path) -> dict[str, str]:
    return {"PATH": str(venv / "bin"), "HOME": str(venv), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}


def _empty(venv: Path) -> Path:
    (venv.parent / "elsewhere").mkdir(exist_ok=True)
    return venv.parent / "elsewhere"


@contextmanager
def _serve_installed(venv: Path) -> Iterator[Server]:
    port, log = free_port(), venv.parent / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen([venv / "bin/text-generation-launcher", "--model-id", DEMO_MODEL,
                                    "--hostname", "127.0.0.1", "--port", str(port)],
                                   cwd=_empty(venv), env=_environment(venv), stdout=output, stderr=output)
    server = Server(process, port, log)
    try:
        server.wait_until_healthy()
        yield server
    finally:
        assert server.terminate() == 0, log.read_text()


def _text(server: Server) -> str:
    request = urllib.request.Request(f"{server.url}/generate", json.dumps(BODY).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        text: str = json.load(answer)["generated_text"]
    return text


def test_archive_has_all_sources_and_nothing_compiled(sdist: Path) -> None:
    command = ["git", "ls-files", *PACKAGES]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    if not tracked:
        pytest.skip("the checkout is no Git repository, whose list of files is compared")
    sources = [name for name in tracked if not name.startswith("bench/results/")]  # which `make figures` alone reads
    assert [name for name in sources if not (sdist / "penstock" / name).is_file()] == []
    assert list(sdist.rglob("*.o")) == []


def test_wheel_is_for_every_python_on_this_machine(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl" if build.can_build() else "-py3-none-any.whl")


def test_nothing_of_ours_is_at_the_top_but_penstock(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    [info] = {name.split("/")[0] for name in names} - {"penstock"}
    assert info.endswith(".dist-info")
    packages = {name.split("/")[1] for name in names if name.startswith("penstock/") and name.count("/") > 1}
    assert packages == PACKAGES
    assert {build.library(path).name for path in build.PATHS} == {Path(name).name for name in names if ".so" in name}
    folders = {Path(name).parent.name for name in names if "/vendored/" in name}
    assert folders == {package.folder.name for package in vendored.PACKAGES}


def test_namesakes_are_left_alone(installed: Path) -> None:
    names = ["penstock", "penstock.kernels.dispatch", "kernels", "transformers", "grpc_tools"]
    code = f"import importlib; [print(importlib.import_module(name).__file__) for name in {names}]"
    files = dict(zip(names, map(Path, _run_in(installed, "-c", code).split()), strict=True))
    assert {name: path.is_relative_to(installed) for name, path in files.items()} == {
        name: name.startswith("penstock") for name in names}
    assert not any(path.is_relative_to(ROOT) and ".venv" not in path.parts for path in files.values())


def test_commands_run(installed: Path) -> None:
    assert "Penstock serves a language model" in _run_in(installed, "-m", "penstock", "--help")
    assert "usage: python -m penstock.shard" in _run_in(installed, "-P", "-m", "penstock.shard", "--help")


def test_installed_server_answers_as_the_checkout_does(installed: Path, tmp_path: Path) -> None:
    with serve(tmp_path) as ours, _serve_installed(installed) as theirs:
        assert _text(theirs) == _text(ours)
        assert "reference" not in theirs.log.read_text()
