"""The signatures of receipts: by them anybody can check which server has given one, and that it was not altered."""

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import orjson
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

ALGORITHM = "Ed25519"
"""RFC 8032."""
FIELD = "signature"
"""The field of a receipt that has its signature, which is of all other fields."""


class BadSignature(ValueError):
    """Says why a receipt is not proven."""


class Signer:
    """Signs receipts by a private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.key_id = _id_of(key.public_key())
        self.public_key = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        """In PEM."""

    @classmethod
    def opened(cls, file: Path) -> Self:
        """Reads a private key in PEM, which has no password. Raises ValueError, which names the file."""
        try:
            key = load_pem_private_key(file.read_bytes(), None)
        except OSError as error:
            raise ValueError(f"cannot read {file}: {error.strerror}") from error
        except (TypeError, ValueError, UnsupportedAlgorithm) as error:
            raise ValueError(f"{file} is no private key in PEM without a password: {error}") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"{file} is no key of {ALGORITHM}, which `openssl genpkey -algorithm ed25519` makes")
        return cls(key)

    def signed(self, receipt: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the receipt with its signature."""
        value = base64.b64encode(self._key.sign(canonical(receipt))).decode()
        return {**receipt, FIELD: {"algorithm": ALGORITHM, "key": self.key_id, "value": value}}


def canonical(receipt: Mapping[str, Any]) -> bytes:
    """Returns the bytes that are signed: the fields of a receipt but for its signature, as RFC 8785 writes them. Its
    numbers are whole and its names are ASCII, so that they need no more than their order."""
    return orjson.dumps({name: value for name, value in receipt.items() if name != FIELD}, option=orjson.OPT_SORT_KEYS)


def verify(receipt: Mapping[str, Any], public_key: bytes) -> None:
    """Checks the signature of a receipt by a public key in PEM. Raises BadSignature."""
    try:
        key = load_pem_public_key(public_key)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadSignature(f"that is no public key in PEM: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise BadSignature(f"that is no public key of {ALGORITHM}")
    signature = receipt.get(FIELD)
    if not isinstance(signature, Mapping):
        raise BadSignature("the receipt is not signed")
    if signature.get("key") != _id_of(key):
        raise BadSignature(f"the receipt is signed by the key {signature.get('key')}, and this one is {_id_of(key)}")
    try:
        key.verify(base64.b64decode(str(signature.get("value"))), canonical(receipt))
    except (ValueError, InvalidSignature):
        raise BadSignature("the receipt was altered: its signature is not of what it says") from None


def _id_of(key: Ed25519PublicKey) -> str:
    """Returns a name for a key: 16 bytes of its digest, in hexadecimal."""
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:32]
