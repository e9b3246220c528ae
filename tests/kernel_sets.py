"""Running a test on each set of kernels, and on each instruction path of the compiled ones."""

from importlib import import_module

import pytest

from kernels import native

OPS = ("kv_write", "linear", "paged_attention", "rms_norm", "rope", "sample", "silu_mul")
CPU_SETS = tuple(f"cpu-{path}" for path in native.processor_paths())
ALL_SETS = ("reference", *CPU_SETS)


def use(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the ops of this process be `reference`, or those of `cpu-{path}`."""
    kind, _, path = name.partition("-")
    for op in OPS:
        monkeypatch.setattr(import_module(f"kernels.{op}"), "_implementation", import_module(f"kernels.{op}.{kind}"))
    if path:
        monkeypatch.setattr(native, "library", native.load(path))
