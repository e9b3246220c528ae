"""What `--env` prints: the software and hardware that a report of a problem should name."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("penstock", "torch", "triton", "tokenizers", "safetensors", "aiohttp", "grpcio")


def describe() -> str:
    """One fact a line; looks at the system without importing what is heavy."""
    lines = [f"platform: {platform.platform()}", f"processor: {_processor()}, {os.cpu_count()} logical",
             f"python: {platform.python_version()}", *(f"{name}: {_version(name)}" for name in PACKAGES)]
    if smi := shutil.which("nvidia-smi"):
        report = subprocess.run([smi, "-L"], capture_output=True, text=True, check=False)
        lines.append(f"nvidia-smi: {(report.stdout or report.stderr).strip()}")
    return "\n".join(lines)


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
