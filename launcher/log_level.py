"""Reads LOG_LEVEL, in TGI's form: levels with commas between them, such as `info,text_generation_router=debug`."""

from collections.abc import Iterator

LEVELS = {"trace": "DEBUG", "debug": "DEBUG", "info": "INFO", "warn": "WARNING", "warning": "WARNING",
          "error": "ERROR", "off": "CRITICAL"}
LAUNCHER, ROUTER, SHARD = "text_generation_launcher", "text_generation_router", "text_generation_server"
"""The targets, as TGI has them. A level without one is for all."""


def level(directives: str, target: str) -> str:
    """Returns the level of a target, by its name in `logging`: its own if there is one, or else that of all."""
    found = "INFO"
    for own, name in sorted(_parse(directives), key=lambda directive: bool(directive[0])):
        if own in ("", target):
            found = LEVELS.get(name, found)
    return found


def unread(directives: str) -> list[str]:
    """Returns the directives that say nothing to this server: their level is none, or their target is not here."""
    return [f"{target}={name}" if target else name for target, name in _parse(directives)
            if name not in LEVELS or target not in ("", LAUNCHER, ROUTER, SHARD)]


def _parse(directives: str) -> Iterator[tuple[str, str]]:
    """Yields each directive's target, which may be empty, and its level."""
    for directive in directives.lower().replace(" ", "").split(","):
        target, _, name = directive.rpartition("=")
        if directive:
            yield target, name
