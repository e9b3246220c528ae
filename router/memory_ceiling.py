"""How much memory the router may come to use. It is announced at the start, so that what grows beyond it is a fault
that can be noticed."""

from contextlib import suppress
from pathlib import Path

from penstock.router.api.http.body_room import least_room
from penstock.router.limits import Limits
from penstock.router.text.known_parts import MOST_BYTES

BLOCK_BYTES = 1 << 10
"""The bytes that the prefix cache takes to find one block."""
REQUEST_BYTES, TOKEN_BYTES = 64 << 10, 512
"""The bytes of a request, and of each of its tokens with their texts and the top tokens beside them."""
OTHER_BYTES = 64 << 20
"""The bytes of all else: grammars, the tokenizer's caches, connections, heaps with gaps."""
BODY_FACTOR = 8
"""How many times a large body is in memory at the most, while it is read and worked on."""
WINDOW_BYTES = 8 << 20
"""How many bytes of lines of batches are asked at once."""
NUM_RESPONSES = 16
"""How many responses of the background are made at once."""
NUM_TRANSFERS, TRANSFER_BYTES = 16, 4 << 20
"""How many files are sent at once, and how many received, and how many bytes each takes: its part, as the store and the
client have it."""
MIB = 1 << 20


def memory_ceiling(limits: Limits, num_blocks: int, others: int = 0, *, num_lines: int | None = None) -> str:
    """Says how much memory this process of the router uses at the most, and its processes for long texts `others`
    beside it; empty where the system does not tell how much it uses now. `num_blocks` are found by its prefix cache: 0
    in one that answers clients with what another computes. If it keeps files, batches and responses it asks as many
    lines of batches at once as yield `num_lines` answers, or one that yields as many as a request may."""
    request = _request_bytes(limits)
    parts = {"of program": _used(), "to find what is cached": num_blocks * BLOCK_BYTES,
             "for requests": limits.max_concurrent_requests * request,
             "for lines of batches": 0 if num_lines is None else (
                 max(num_lines, limits.max_concurrent_requests) * request + BODY_FACTOR * WINDOW_BYTES),
             "for responses of the background": 0 if num_lines is None else NUM_RESPONSES * (
                 request + BODY_FACTOR * limits.payload_limit),
             "for files": 0 if num_lines is None else 2 * NUM_TRANSFERS * TRANSFER_BYTES,
             "for known parts of chats": MOST_BYTES,
             "for large bodies": BODY_FACTOR * least_room(limits.payload_limit),
             "for all else": OTHER_BYTES}
    if not parts["of program"]:
        return ""
    return (f"at most {_mib(sum(parts.values()))} MiB of memory: "
            + ", ".join(f"{_mib(size)} {purpose}" for purpose, size in parts.items() if size)
            + f"; while long texts are tokenised, at most {_mib(others)} MiB in other processes" * (others > 0))


def ceiling_of_model(limits: Limits, num_blocks: int) -> int:
    """Returns how many MiB the router uses at the most for the requests of one more model, beside its tokenizer."""
    return _mib(num_blocks * BLOCK_BYTES + limits.max_concurrent_requests * _request_bytes(limits))


def _request_bytes(limits: Limits) -> int:
    return REQUEST_BYTES + limits.max_total_tokens * TOKEN_BYTES


def _used() -> int:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
    return 0


def _mib(size: int) -> int:
    return -(-size // MIB)
