"""Where the tokenizer.json of a model is, which a process makes of its other files if there is none."""

import logging
import subprocess
import sys
import time
from pathlib import Path

from penstock.checkpoints.tokenizers.settings import Settings
from penstock.checkpoints.tokenizers.sources import ACCEPTED, TOKENIZER, find
from penstock.system import child_environment
from penstock.system.arguments import InvalidArgument
from penstock.system.fields import FileError
from penstock.system.tokenizer_json import added_tokens
from penstock.system.user_cache import cache_folder

PATIENCE = 600.0
"""The seconds that a conversion may take: one of 200,000 tokens takes a few."""

log = logging.getLogger(__name__)


def tokenizer_of(folder: Path) -> Path:
    """Returns the tokenizer.json of a model's folder. Without one, or if it lacks tokens that other files name, it is
    made of what is there, once: it is kept in the user's cache, or in the folder if that can't be written and has none.
    Raises InvalidArgument."""
    made = folder / TOKENIZER
    if not made.exists():
        return _made(folder, [made])
    if not lacks_tokens(made):
        return made
    try:
        return _made(folder, [])
    except InvalidArgument as error:
        log.warning("%s lacks tokens that the files beside it name, and is used without them: %s", made, error)
        return made


def lacks_tokens(path: Path) -> bool:
    """Tells whether a tokenizer.json lacks tokens that the files beside it name. Files that make no sense are told, and
    name none."""
    try:
        named = {token.text for token in Settings.read(path.parent).added}
        return bool(named.difference(token.get("content") for token in added_tokens(path)))
    except (FileError, OSError, ValueError, RecursionError) as error:
        log.warning("%s is used as it is, without what the files beside it say: %s", path, error)
        return False


def _made(folder: Path, places: list[Path]) -> Path:
    """Returns the tokenizer.json made of a folder's files, in the user's cache or one of these places. Raises
    InvalidArgument."""
    try:
        source = find(folder)
        if source is None:
            raise FileError(folder, f"it has no file {TOKENIZER}, nor what one can be made of: {ACCEPTED}")
        cache = cache_folder()
        cached = None if cache is None else cache / "tokenizers" / source.digest() / TOKENIZER
    except FileError as error:
        raise InvalidArgument(f"`model_id`: {error}") from error
    if cached is not None and cached.exists():
        return cached
    start = time.monotonic()
    places = [*places] if cached is None else [cached, *places]
    if not places:
        raise InvalidArgument("there is no folder for it: give one as XDG_CACHE_HOME")
    path = _make(folder, source.path, places)
    log.info("Made %s of %s in %.1f s", path, source.path.name, time.monotonic() - start)
    return path


def _make(folder: Path, source: Path, places: list[Path]) -> Path:
    program = [sys.executable, "-P", "-m", "penstock.checkpoints.tokenizers", str(folder), *map(str, places)]
    try:
        result = subprocess.run(program, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                env=child_environment.for_text(), timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise InvalidArgument(f"`model_id`: {source}: to make {TOKENIZER} of it takes more than {PATIENCE:.0f} s"
                              ) from None
    if result.returncode:
        last = next(reversed(result.stderr.strip().splitlines()), f"the process ended with {result.returncode}")
        raise InvalidArgument(f"`model_id`: {last}")
    return Path(result.stdout.strip())
