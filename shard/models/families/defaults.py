"""The values of keys that are absent from config.json."""

import json
from importlib.resources import files
from typing import Any

DEFAULTS: dict[str, dict[str, Any]] = json.loads(files(__package__).joinpath("defaults.json").read_bytes())
"""By architecture, every key that a family reads: as transformers has it, or the authors of what that lacks. `python -m
tests.family_defaults` writes the file."""
