"""The names that the user gave: messages use these, and not the names that were made of them."""

import re
from pathlib import Path


def as_given(message: str, folder: Path, given: str | None) -> str:
    """Returns a message about a folder, or a JSON file in it, as one about the file that the folder was made of, which
    the user has called `given`; None stands for a folder that was not made."""
    return message if given is None else re.sub(rf"{re.escape(str(folder))}(/[\w.]+\.json)?", lambda _: given, message)
