"""The software and hardware found: for `--env`, which the report of a problem should quote, and for clients."""

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version

from penstock.contract.facts import Facts

PACKAGES = ("penstock", "torch", "triton", "tokenizers", "safetensors", "aiohttp", "grpcio")


def describe() -> str:
    """Returns a fact on each line, found without importing heavy packages."""
    lines = [f"platform: {platform.platform()}", f"processor: {_processor()}, {os.cpu_count()} logical",
             f"python: {platform.python_version()}", *(f"{name}: {_version(name)}" for name in PACKAGES)]
    if smi := shutil.which("nvidia-smi"):
        report = subprocess.run([smi, "-L"], capture_output=True, text=True, check=False)
        lines.append(f"nvidia-smi: {(report.stdout or report.stderr).strip()}")
    return "\n".join(lines)


def compute_type(facts: Facts) -> str:
    """Returns the shards' kind of device, as TGI writes it: `2-nvidia-h100-80gb-hbm3`, or `cpu` without GPUs."""
    if not facts.has_gpus:
        return "cpu"
    smi = shutil.which("nvidia-smi")
    query = [smi, "--query-gpu=name", "--format=csv,noheader"] if smi else []
    answer = subprocess.run(query, capture_output=True, text=True, check=False) if query else None
    names = answer.stdout.splitlines() if answer and answer.returncode == 0 else []  # it complains on stdout, too
    return f"{facts.world_size}-{re.sub('[ _]', '-', names[0].strip().lower()) if names else 'cuda'}"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as facts:
            models = [line.partition(":")[2].strip() for line in facts if line.startswith("model name")]
    except OSError:
        models = []
    return models[0] if models else platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
