"""Where programs of this user keep what they can make again."""

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """Returns the folder that is ours in the user's cache; None for a user without a home."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "penstock"
    try:
        return Path.home() / ".cache" / "penstock"
    except RuntimeError:
        return None
