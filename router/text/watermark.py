"""Detects the watermark that `watermark: true` leaves in a text: the one-proportion z-test of Kirchenbauer et al., "A
Watermark for Large Language Models" (arXiv:2301.10226), over the green lists of shard/execution/watermark.py."""

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

HASH_KEY = 15485863
"""Must be the key that the shards seed their green lists with."""
_STATE_WORDS = 624


@dataclass(frozen=True, slots=True)
class Detection:
    """The result of the test: `z` counts the standard deviations by which the green tokens exceed chance."""

    num_tokens: int
    num_green: int
    z: float
    p_value: float


def detect(token_ids: Sequence[int], vocab_size: int, gamma: float = 0.5) -> Detection:
    """Tests whether `token_ids` prefer the green lists that share `gamma` of the vocabulary makes.

    The first token is not counted, for nothing says what came before it. A pair of tokens that repeats is counted
    once, for its repetitions are no independent evidence. ValueError if no pair is left, or every token is green.
    """
    successors: dict[int, set[int]] = defaultdict(set)
    for previous, token in itertools.pairwise(token_ids):
        successors[previous].add(token)
    num_tokens = sum(map(len, successors.values()))
    if not num_tokens:
        raise ValueError("the text has fewer than two tokens, so there is nothing to test")
    if not 0 < int(gamma * vocab_size) < vocab_size:
        raise ValueError(f"a gamma of {gamma} leaves no token, or every token, of {vocab_size} in the green list")
    share = int(gamma * vocab_size) / vocab_size
    num_green = sum(len(tokens.intersection(green_list(previous, vocab_size, gamma)))
                    for previous, tokens in successors.items())
    z = (num_green - share * num_tokens) / math.sqrt(num_tokens * share * (1 - share))
    return Detection(num_tokens, num_green, z, math.erfc(z / math.sqrt(2)) / 2)


def green_list(previous_token: int, vocab_size: int, gamma: float) -> list[int]:
    """Returns the tokens that a watermark prefers after `previous_token`, as torch's CPU generator shuffles them.

    `torch.randperm` draws the remainder of a 32-bit number for each place and swaps; only the first places count.
    """
    draw = _mersenne_twister(HASH_KEY * previous_token).getrandbits
    tokens = list(range(vocab_size))
    num_green = int(gamma * vocab_size)
    for place in range(num_green):
        other = place + draw(32) % (vocab_size - place)
        tokens[place], tokens[other] = tokens[other], tokens[place]
    return tokens[:num_green]


def _mersenne_twister(seed: int) -> random.Random:
    """Returns an MT19937 seeded as torch and numpy do; Python's own seeding fills the state in another way."""
    word = seed & 0xFFFFFFFF
    state = [word]
    for index in range(1, _STATE_WORDS):
        word = (1812433253 * (word ^ word >> 30) + index) & 0xFFFFFFFF
        state.append(word)
    generator = random.Random()
    generator.setstate((3, (*state, _STATE_WORDS), None))
    return generator
