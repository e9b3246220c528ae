"""A request as the engine takes it: valid, tokenised, complete."""

from dataclasses import dataclass

from router.scheduling.plan import Sampling


@dataclass(frozen=True, slots=True)
class Request:
    """What to generate. Made by `router.validation` only, so nothing in here is checked again.

    `max_new_tokens` is what fits: prompt + max_new_tokens never exceeds the limit on total tokens. The answer's text is
    cut at the end of a stop string if `keep_stop`, otherwise before it.
    """

    input_ids: tuple[int, ...]
    sampling: Sampling
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    keep_stop: bool = True
    ignore_eos: bool = False
