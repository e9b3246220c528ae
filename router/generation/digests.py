"""Digests by which records and receipts name tokens."""

import hashlib
from array import array
from collections.abc import Iterable


def digest(content: bytes) -> str:
    """Returns the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def digest_of_ids(ids: Iterable[int]) -> str:
    """Returns the SHA-256 of token ids, each as eight bytes, the lowest first."""
    return digest(array("q", ids).tobytes())
