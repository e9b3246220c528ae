"""What --env prints, and what clients are told the server runs on."""

import platform
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.router import environment
from tests.fakes import FACTS


def test_names_what_a_report_needs():
    facts = dict(line.split(": ", 1) for line in environment.describe().splitlines())
    assert facts["python"] == platform.python_version()
    assert facts["torch"].split(".")[0].isdigit()
    assert facts["processor"].endswith("logical")


def test_package_that_is_missing():
    assert environment._version("no-such-package-at-all") == "not installed"


def test_compute_type_as_tgi_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpus = replace(FACTS, numerics="gpu-sm90/bfloat16/kv-bfloat16/contract-1", world_size=2)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.compute_type(FACTS) == "cpu"
    assert environment.compute_type(on_gpus) == "2-cuda"
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'NVIDIA H100_80GB HBM3'\necho 'NVIDIA H100 80GB HBM3'\n")
    smi.chmod(0o755)
    assert environment.compute_type(on_gpus) == "2-nvidia-h100-80gb-hbm3"
    smi.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Unknown Error'\nexit 255\n")
    assert environment.compute_type(on_gpus) == "2-cuda"
