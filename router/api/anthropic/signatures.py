"""The signatures of thinking blocks. Anthropic's prove whose thoughts they are; here a block that hides its thoughts
carries them in its signature, so that the model has them again when the conversation goes on."""

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

_CARRIED = "thoughts."
"""Begins a signature that has the thoughts in it."""


def signature(thoughts: str, is_shown: bool) -> str:
    """Returns the signature of a block. It follows from the thoughts alone, so that it is the same when an answer is
    repeated."""
    encoded = thoughts.encode("utf-8", "surrogatepass")
    if is_shown:
        return hashlib.sha256(encoded).hexdigest()[:32]
    return _CARRIED + urlsafe_b64encode(encoded).decode()


def carried(signature: str) -> str:
    """Returns the thoughts that a signature carries; an empty text if it carries none, as those of other servers."""
    if not signature.startswith(_CARRIED):
        return ""
    try:
        return urlsafe_b64decode(signature.removeprefix(_CARRIED)).decode("utf-8", "surrogatepass")
    except ValueError:
        return ""
