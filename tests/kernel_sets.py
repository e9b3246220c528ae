"""Running a test on each set of kernels, and on each instruction path of the compiled ones."""

from importlib import import_module

import pytest

from kernels import native

OPS = ("attention_layer", "kv_write", "linear", "mlp_layer", "paged_attention", "rms_norm", "rope", "sample", "score",
       "silu_mul")
CPU_SETS = tuple(f"cpu-{path}" for path in native.processor_paths())
"""The first is the one that serves on this machine."""
ALL_SETS = (*CPU_SETS, "reference")


def use(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the ops of this process, and of those that it starts, be `reference`, or those of `cpu-{path}`."""
    kind, _, path = name.partition("-")
    monkeypatch.setenv("KERNELS", kind)
    monkeypatch.setenv("KERNELS_PATH", path)
    for op in OPS:
        monkeypatch.setattr(import_module(f"kernels.{op}"), "_implementation", import_module(f"kernels.{op}.{kind}"))
    if path:
        monkeypatch.setattr(native, "library", native.load(path))
