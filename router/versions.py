"""The versions of models: `chat@3` is the third of `chat`."""

FIRST = "1"
"""The version of a model whose name has none."""


def split_version(name: str) -> tuple[str, str]:
    """Returns a model's name without its version, and the version."""
    base, _, version = name.rpartition("@")
    return (base, version) if base and version.isdecimal() else (name, FIRST)
