"""Where Penstock lies."""

from pathlib import Path

import penstock

ROOT = Path(penstock.__file__).parents[1]
"""The folder in which Python finds Penstock; of a checkout, its top."""
DEMO_MODEL = ROOT / "deploy" / "demo_model" / "checkpoint"
BUILD = Path("build")
"""Where benchmarks write, in the current folder."""
