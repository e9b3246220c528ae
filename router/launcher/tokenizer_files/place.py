"""Where the tokenizer.json of a model is, which a process makes of its other files if there is none."""

import logging
import subprocess
import sys
import time
from pathlib import Path

from penstock.router import variables
from penstock.router.config import InvalidArgument
from penstock.router.fields import FileError
from penstock.router.launcher.tokenizer_files.sources import ACCEPTED, find

TOKENIZER = "tokenizer.json"
PATIENCE = 600.0
"""The seconds that a conversion may take: one of 200,000 tokens takes a few."""

log = logging.getLogger(__name__)


def tokenizer_of(folder: Path) -> Path:
    """Returns the tokenizer.json of a model's folder. Without one it is made of what is there in its place, once: it is
    kept in the user's cache, or in the folder if that can't be written. Raises InvalidArgument."""
    made = folder / TOKENIZER
    if made.exists():
        return made
    try:
        source = find(folder)
        if source is None:
            raise FileError(folder, f"it has no file {TOKENIZER}, nor what one can be made of: {ACCEPTED}")
        cache = variables.cache_folder()
        cached = None if cache is None else cache / "penstock" / "tokenizers" / source.digest() / TOKENIZER
    except FileError as error:
        raise InvalidArgument(f"`model_id`: {error}") from error
    if cached is not None and cached.exists():
        return cached
    start = time.monotonic()
    path = _make(folder, source.path, [made] if cached is None else [cached, made])
    log.info("Made %s of %s in %.1f s", path, source.path.name, time.monotonic() - start)
    return path


def _make(folder: Path, source: Path, places: list[Path]) -> Path:
    program = [sys.executable, "-P", "-m", "penstock.router.launcher.tokenizer_files", str(folder), *map(str, places)]
    try:
        result = subprocess.run(program, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                env=variables.for_text(), timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise InvalidArgument(f"`model_id`: {source}: to make {TOKENIZER} of it takes more than {PATIENCE:.0f} s"
                              ) from None
    if result.returncode:
        last = next(reversed(result.stderr.strip().splitlines()), f"the process ended with {result.returncode}")
        raise InvalidArgument(f"`model_id`: {last}")
    return Path(result.stdout.strip())
