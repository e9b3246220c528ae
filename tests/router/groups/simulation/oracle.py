"""A model made of hashes: what follows depends on every token before it, and on who computes it, as real bits do."""

from collections.abc import Sequence

VOCAB, EOS, STOP, PLAIN = 32, 1, 2, 3
"""Tokens from PLAIN on mean nothing."""
ALL = 2**VOCAB - 1


def begin(weights: str, numerics: str, adapter: str) -> int:
    """Returns what an empty sequence holds. Names are a letter and a number, which alone counts: texts have other
    hashes in each process."""
    return hash((int(weights[1:]), int(numerics[1:]), int(adapter[1:])))


def extend(value: int, token_id: int) -> int:
    """Returns what the position of a token holds, behind one that holds `value`."""
    return hash((value, token_id))


def draw(values: Sequence[int], last: int, seed: int, branch: int, allowed: int = ALL) -> tuple[int, float]:
    """Returns the token, of those `allowed`, that follows positions with these values, and its logprob. Often it
    follows from the `last` token alone, so that it can be guessed."""
    number = hash((seed, branch, *values))
    logprob = -(number >> 16 & 4095) / 512
    if allowed != ALL:
        ids = [token_id for token_id in range(VOCAB) if allowed >> token_id & 1]
        return ids[number % len(ids)], logprob
    if number % 16 == 0:
        return (EOS, STOP)[number >> 4 & 1], logprob
    if number % 16 < 12:
        return PLAIN + (last + 1) % 3, logprob
    return PLAIN + (number >> 8) % (VOCAB - PLAIN), logprob


def prompt_logprob(values: Sequence[int], token_id: int) -> float:
    """Returns the logprob of a prompt's token behind positions with these values."""
    return -(hash((token_id, *values)) & 4095) / 512


class Truth:
    """What one sequence is, by a model: its tokens, and the values of their positions."""

    def __init__(self, first: int, tokens: Sequence[int]) -> None:
        self.first = first
        self.tokens: list[int] = []
        self.values: list[int] = []
        for token_id in tokens:
            self.append(token_id)

    def append(self, token_id: int) -> None:
        self.values.append(extend(self.values[-1] if self.values else self.first, token_id))
        self.tokens.append(token_id)

    def next(self, seed: int, branch: int, allowed: int) -> tuple[int, float]:
        return draw(self.values, self.tokens[-1], seed, branch, allowed)

    def prompt_logprobs(self, length: int) -> list[float]:
        """Returns those of a prompt of `length` tokens, but for the first."""
        return [prompt_logprob(self.values[:place], self.tokens[place]) for place in range(1, length)]
