"""Python's own warnings, such as a library's of a setting that it will drop, as lines of the log."""

import logging
import warnings
from typing import TextIO

log = logging.getLogger("py.warnings")


def say_warnings() -> None:
    """Has this process log each warning in one line: Python prints two, with a line of source, that are not JSON."""
    warnings.showwarning = _log


def _log(message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
         line: str | None = None) -> None:
    log.warning("%s: %s", category.__name__, " ".join(str(message).split()))
