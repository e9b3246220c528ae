"""The result of a row of a plan."""

from typing import NamedTuple

TopLogprobs = tuple[tuple[int, float], ...]
"""The likeliest tokens at one position with their logprobs, the likeliest first, of equal ones the lowest id."""


class OtherResult(NamedTuple):
    """A result that is neither a token nor a logprob; its `kind` says how to read the value."""

    kind: str
    value: bytes


class RowResult(NamedTuple):
    """Has the tokens that a row yielded, with the logprob of each, and the logprobs of its `prompt_logprob_ids`.

    `top_logprobs` has an entry for each of `token_ids`, `prompt_top_logprobs` for each of `prompt_logprobs`; both are
    empty if none was asked for. `prompt_ranks` are the places of the latter's tokens among all, the first being 1, in
    the order of top logprobs. Every row may have `others`, also one that yields no token.
    """

    slot: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    top_logprobs: tuple[TopLogprobs, ...] = ()
    prompt_logprobs: tuple[float, ...] = ()
    prompt_top_logprobs: tuple[TopLogprobs, ...] = ()
    others: tuple[OtherResult, ...] = ()
    prompt_ranks: tuple[int, ...] = ()
