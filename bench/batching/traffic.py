"""Requests as people send them: prompts and answers of many lengths, a few of them long."""

import random

from penstock.bench.batching.drive import Request, Shape

SHARE = 4
"""How many times shorter than the longest prompts and answers are on average."""
FIRST_ID = 16                            # behind the special tokens


def make_requests(number: int, prompt: int, new: int, gap: float, vocab_size: int, seed: int = 0) -> list[Request]:
    """Returns requests with prompts of `prompt` tokens at most, and answers of `new`, which is what each may have.
    Lengths are exponential. They come `gap` after each other on average, all at once if that is 0."""
    draw = random.Random(seed)
    at, requests = 0.0, []
    for _ in range(number):
        tokens = tuple(draw.randrange(FIRST_ID, vocab_size) for _ in range(draw_length(draw, prompt)))
        requests.append(Request(at, tokens, draw_length(draw, new), new))
        at += draw.expovariate(1 / gap) if gap else 0.0
    return requests


def draw_length(draw: random.Random, most: int) -> int:
    """Returns an exponential length, on average `most` / SHARE."""
    return min(most, 1 + round(draw.expovariate(SHARE / most)))


def room_for(num_slots: int, prompt: int, new: int, block_size: int, max_step_tokens: int) -> Shape:
    """Returns the room in which as many of the longest sequences run as there are slots."""
    return Shape(num_slots, num_slots * -(-(prompt + new) // block_size), block_size, num_slots + max_step_tokens)
