"""A plan's order for one sequence."""

from typing import NamedTuple

from penstock.contract.ids import Ids
from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output

_SAMPLE = Output.SAMPLE                  # an enum's members are looked up slowly, and rows are asked often


class Row(NamedTuple):
    """Orders one sequence in one step. The input is `token_ids`, behind the token last sampled in the slot if
    `from_last_sample` is set.

    `start` is the position of the first input token; `new_blocks` are appended to the slot's block table. With
    `late_mask` the step waits for a mask before it samples. `prompt_logprob_ids` are the tokens that follow the first
    inputs, one for each: their logprobs are wanted. The last `num_drafts` of `token_ids` are guesses: a token is
    sampled before the first of them and after each, as if those before it were right. So it is with `num_proposals`
    more tokens, which the shards' draft model puts behind the inputs; a row has guesses of one kind.
    """

    slot: int
    start: int
    token_ids: Ids = ()
    from_last_sample: bool = False
    new_blocks: tuple[int, ...] = ()
    output: Output = Output.SAMPLE
    initial_state: InitialState | None = None
    late_mask: bool = False
    prompt_logprob_ids: Ids = ()
    num_drafts: int = 0
    num_proposals: int = 0
    is_decode: bool = False
    """Whether it only continues from a sampled token. The shards are not told."""

    @property
    def num_inputs(self) -> int:
        """How many input tokens the row has."""
        return len(self.token_ids) + self.from_last_sample + self.num_proposals

    @property
    def end(self) -> int:
        """The position behind the last input."""
        return self.start + len(self.token_ids) + self.from_last_sample + self.num_proposals

    @property
    def num_guesses(self) -> int:
        """How many of the inputs are guesses."""
        return self.num_drafts + self.num_proposals

    @property
    def drafts(self) -> tuple[int, ...]:
        """The guesses that the row brings."""
        return tuple(self.token_ids[len(self.token_ids) - self.num_drafts:])

    @property
    def is_sampled(self) -> bool:
        """Tells whether the row yields a token."""
        return self.output is _SAMPLE

    @property
    def num_samples(self) -> int:
        """How many tokens are sampled: one, and one before each guess."""
        return self.num_drafts + self.num_proposals + 1 if self.output is _SAMPLE else 0

    @property
    def first_sample(self) -> int:
        """The position of the first token that is sampled."""
        return self.start + len(self.token_ids) + self.from_last_sample - self.num_drafts

    @property
    def sample_positions(self) -> range:
        """The positions of all tokens that are sampled."""
        first = self.start + len(self.token_ids) + self.from_last_sample - self.num_drafts
        return range(first, first + self.num_samples)

    @property
    def is_answered(self) -> bool:
        """Tells whether the step's result has a row for this one."""
        return self.output is not Output.NONE or bool(self.prompt_logprob_ids)
