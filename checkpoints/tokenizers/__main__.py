"""`python -m penstock.checkpoints.tokenizers FOLDER FILE...` converts a model's tokenizer, and prints which of
the files it has written: the first that can be."""

import os
import sys
from pathlib import Path

from penstock.checkpoints.tokenizers.conversion import convert
from penstock.checkpoints.tokenizers.sources import find
from penstock.system.arguments import USAGE_ERROR
from penstock.system.fields import FileError


def main() -> None:
    folder, *places = map(Path, sys.argv[1:])
    try:
        source = find(folder)
        if source is None:
            raise FileError(folder, "its tokenizer's files are gone")
        print(_write(convert(source), places))
    except (FileError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(USAGE_ERROR)


def _write(content: str, places: list[Path]) -> Path:
    """Writes the first file that can be written. Raises OSError of the last if none can."""
    for place in places:
        try:
            _replace(place, content)
        except OSError as error:
            if place == places[-1]:
                raise OSError(f"{place.name} cannot be written to {' or '.join(str(each.parent) for each in places)} "
                              f"({error.strerror}): give a folder that can be as XDG_CACHE_HOME") from error
        else:
            return place
    raise AssertionError("no place was given")


def _replace(path: Path, content: str) -> None:
    """Writes a file that others may read or write at the same time: it is whole at any time. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(content, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
