"""Virtual environments for clients, whose requirements contradict one another and ours."""

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2] / ".venv" / "clients"


def python_with(*requirements: str) -> Path:
    """The interpreter of an environment that has `requirements`; it is made once, and kept."""
    name = hashlib.sha256(" ".join([sys.version, *requirements]).encode()).hexdigest()[:16]
    home = ROOT / name
    python, stamp = home / "bin" / "python", home / "complete"
    if not stamp.exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
        stamp.touch()
    return python
