import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from penstock.kernels import build, dispatch, native
from penstock.kernels.rms_norm import reference

PRINT_PATH = "from penstock.kernels import dispatch, linear; print(dispatch.path())"


@pytest.fixture
def fresh_choice(monkeypatch):
    for name in ("KERNELS", "KERNELS_PATH", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)
    dispatch.kernel_set.cache_clear()
    yield
    monkeypatch.undo()
    dispatch.configure()


def without_processor(monkeypatch):
    """As on a processor that the compiled kernels are not made for."""
    monkeypatch.delattr(native, "library")
    monkeypatch.setattr(native, "processor_paths", tuple)


@pytest.mark.parametrize("value", [None, "", "cpu"])
def test_compiled_kernels_are_the_default(monkeypatch, fresh_choice, value):
    if value is not None:
        monkeypatch.setenv("KERNELS", value)
    assert dispatch.kernel_set() == "cpu"
    assert dispatch.path() == f"cpu-{native.library.path}"
    assert dispatch.choose(reference.rms_norm).__module__ == "penstock.kernels.rms_norm.cpu"


def test_the_reference_on_demand(monkeypatch, fresh_choice):
    monkeypatch.setenv("KERNELS", "reference")
    assert dispatch.path() == dispatch.kernel_set() == "reference"
    assert dispatch.choose(reference.rms_norm).__module__ == "penstock.kernels.rms_norm.reference"
    dispatch.set_threads(2)


def test_a_choice_that_does_not_exist_is_an_error(monkeypatch, fresh_choice):
    monkeypatch.setenv("KERNELS", "fast")
    with pytest.raises(ValueError, match=r"KERNELS=fast: these kernels do not exist.*which has: reference, cpu, gpu"):
        dispatch.kernel_set()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
class TestWithoutGpu:
    def test_a_gpu_that_is_asked_for_is_an_error(self, monkeypatch, fresh_choice):
        why = "built without CUDA" if torch.version.cuda is None else "finds no GPU"
        with pytest.raises(ValueError, match=rf"^--device cuda: torch .*{why}.*[Oo]r use --device cpu"):
            dispatch.configure(device="cuda")
        monkeypatch.setenv("KERNELS", "gpu")
        with pytest.raises(ValueError, match=r"^--device cuda: "):
            dispatch.configure(device="cuda")
        with pytest.raises(ValueError, match=rf"^KERNELS=gpu: torch .*{why}"):
            dispatch.configure()

    def test_the_interpreter_is_a_processor(self, monkeypatch, fresh_choice):
        monkeypatch.setenv("KERNELS", "gpu")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        assert dispatch.path() == "gpu-interpreter"
        assert dispatch.device() == torch.device("cpu")
        assert not dispatch.is_deterministic()
        dispatch.configure(is_deterministic=True)
        assert dispatch.path() == "gpu-interpreter-deterministic"
        with pytest.raises(ValueError, match=r"^--device cuda: "):
            dispatch.configure(device="cuda")


@pytest.mark.gpu
def test_a_gpu_is_the_default(fresh_choice):
    assert dispatch.kernel_set() == "gpu"
    assert dispatch.device() == torch.device("cuda")
    assert dispatch.path().startswith("gpu-sm")


def test_a_processor_that_is_asked_for(fresh_choice):
    dispatch.configure(device="cpu")
    assert dispatch.kernel_set() == "cpu"
    assert dispatch.is_deterministic()


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_kernels_of_another_device_are_an_error(monkeypatch, fresh_choice, name):
    monkeypatch.setenv("KERNELS", name)
    with pytest.raises(ValueError, match=f"--device cuda: KERNELS={name} asks for kernels that run on the processor"):
        dispatch.configure(device="cuda")


def test_without_triton(monkeypatch, fresh_choice):
    monkeypatch.setenv("KERNELS", "gpu")
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ValueError, match=r"KERNELS=gpu: Triton is not installed; .*pip install triton"):
        dispatch.kernel_set()


def test_another_processor_has_the_reference_and_a_warning(monkeypatch, fresh_choice, caplog):
    without_processor(monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert dispatch.kernel_set() == "reference"
    [message] = caplog.messages
    assert message.startswith("the reference kernels serve, many times slower")
    assert "AVX2" in message


@pytest.mark.parametrize(("name", "value"), [("KERNELS", "cpu"), ("KERNELS_PATH", "avx2")])
def test_a_choice_that_another_processor_cannot_meet_is_an_error(monkeypatch, fresh_choice, name, value):
    without_processor(monkeypatch)
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name}={value}: .*AVX2"):
        dispatch.kernel_set()


@pytest.mark.slow
@pytest.mark.parametrize("path", native.processor_paths())
def test_each_path_can_be_forced(path):
    environment = {"KERNELS_PATH": path, "PATH": ""}
    program = subprocess.run([sys.executable, "-c", PRINT_PATH], cwd=build.SOURCES.parents[1], env=environment,
                             check=True, capture_output=True, text=True, timeout=60)
    assert program.stdout == f"cpu-{path}\n"


def test_a_library_is_named_after_its_sources_and_flags(monkeypatch, tmp_path):
    names = {build.library(path, is_sanitized).name for path in build.PATHS for is_sanitized in (False, True)}
    assert len(names) == 2 * len(build.PATHS)
    (tmp_path / "abi.h").write_text("void penstock_nothing();\n")
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    assert not {build.library(path).name for path in build.PATHS} & names


def test_building(monkeypatch, tmp_path, capsys):
    """What is there is not made again, and what other sources made is removed."""
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "abi.h").write_text("")
    source = tmp_path / "csrc" / "one.cpp"
    source.write_text("int one;\n")
    monkeypatch.setattr(build, "SOURCES", tmp_path / "csrc")
    monkeypatch.setattr(build, "LIBRARIES", tmp_path / "lib")
    made = build.build()
    assert "compiling" in capsys.readouterr().err
    assert {file.stat().st_mtime_ns for file in build.build()} == {file.stat().st_mtime_ns for file in made}
    assert not capsys.readouterr().err
    source.write_text("int two;\n")
    assert set(build.build()) == set((tmp_path / "lib").iterdir()) != set(made)
    source.write_text("two")
    with pytest.raises(build.BuildError, match=r"one\.cpp"):
        build.build()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(build.BuildError, match=r"no-such-compiler is not there: apt-get install g\+\+"):
        build.build()


def test_a_library_that_was_not_built_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "LIBRARIES", tmp_path)
    with pytest.raises(FileNotFoundError, match="was not built: run `make setup`"):
        native.Library("avx2")


def test_threads_stay_where_they_are_told(cpu_kernels):
    """The caller's affinity is restored by the system's means, as nothing else undoes it."""
    before = os.sched_getaffinity(0)
    [cpu, *_] = before
    try:
        dispatch.set_threads(2, [cpu, max(before)])
        pinned = {tuple(os.sched_getaffinity(int(task.name))) for task in Path("/proc/self/task").iterdir()}
        assert (cpu,) in pinned
        assert (max(before),) in pinned
    finally:
        os.sched_setaffinity(0, before)
        dispatch.set_threads(1)
