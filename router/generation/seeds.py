"""Seeds that follow from something else, so that an answer whose seed nobody gave can be had again."""

import hashlib


def derived_seed(seed: int, number: int) -> int:
    """Returns the seed of a request's prompt or candidate of this number, from 1 on, by that of the first."""
    return _seed(f"{seed}\n{number}")


def seed_of_key(key: str, digest: str) -> int:
    """Returns the seed of the answer to the request of this digest that each sender of an idempotency key gets."""
    return _seed(f"{digest}\n{key}")


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
