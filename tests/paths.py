"""Where the parts of the repository lie that tests read."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
DEMO_MODEL = ROOT / "deploy/demo_model/checkpoint"
