"""Whoever signs the receipts of answers."""

from collections.abc import Mapping
from typing import Any, Protocol


class Signer(Protocol):
    """Signs receipts, so that clients can check who has given them."""

    key_id: str
    """Names the key."""
    public_key: str
    """By which signatures are checked, in PEM."""

    def signed(self, receipt: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the receipt with its signature."""
