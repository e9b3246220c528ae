"""SageMaker's names for settings, as its containers start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

SCRIPT = ROOT / "deploy/sagemaker-entrypoint.sh"
MAPPED = ("MODEL_ID", "REVISION", "NUM_SHARD", "QUANTIZE", "TRUST_REMOTE_CODE")
THEIRS = ("HF_MODEL_ID", "HF_MODEL_REVISION", "SM_NUM_GPUS", "HF_MODEL_QUANTIZE", "HF_MODEL_TRUST_REMOTE_CODE")


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    """One that only tells what it was told."""
    program = tmp_path / "text-generation-launcher"
    program.write_text(f"#!{sys.executable}\nimport os, sys\nprint(sys.argv[1:])\n"
                       f"print({{name: os.environ[name] for name in {MAPPED!r} if name in os.environ}})\n")
    program.chmod(0o755)
    return tmp_path


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in (*MAPPED, *THEIRS)}
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False,
                          env=clean | {"PATH": f"{folder}:{clean['PATH']}"} | variables)


def test_all_of_them(launcher):
    run = start(launcher, "serve", HF_MODEL_ID="some/model", HF_MODEL_REVISION="main", SM_NUM_GPUS="2",
                HF_MODEL_QUANTIZE="fp8", HF_MODEL_TRUST_REMOTE_CODE="true")
    told = {"MODEL_ID": "some/model", "REVISION": "main", "NUM_SHARD": "2", "QUANTIZE": "fp8",
            "TRUST_REMOTE_CODE": "true"}
    assert (run.returncode, run.stdout) == (0, f"['--port', '8080']\n{told}\n")


def test_only_the_model_and_flags_of_ours(launcher):
    run = start(launcher, "--max-best-of", "3", HF_MODEL_ID="/opt/ml/model", HF_MODEL_REVISION="")
    assert run.stdout == "['--port', '8080', '--max-best-of', '3']\n{'MODEL_ID': '/opt/ml/model'}\n"


def test_an_instance_without_gpus(launcher):
    run = start(launcher, "serve", HF_MODEL_ID="some/model", SM_NUM_GPUS="0")
    assert run.stdout == "['--port', '8080']\n{'MODEL_ID': 'some/model'}\n"


def test_no_model(launcher):
    run = start(launcher, "serve")
    assert (run.returncode, run.stdout, run.stderr) == (1, "", "HF_MODEL_ID must be set\n")
