"""The ids of tokens."""

from collections.abc import Sequence

Ids = Sequence[int]
"""A tuple where they are written, an array of the standard library where they were read from the wire."""
