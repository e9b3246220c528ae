"""A client's request for one prompt, in the terms that all APIs share."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.contract.side_inputs import SideInput
from penstock.router.generation.parameters import Parameters


class FieldNames(NamedTuple):
    """The names of fields where the client writes them, for errors to name; these are TGI's."""

    inputs: str = "inputs"
    max_new_tokens: str = "max_new_tokens"
    top_n_tokens: str = "top_n_tokens"
    truncate: str = "truncate"
    grammar: str = "grammar"
    num_beams: str = "num_beams"
    beam_search: str = "num_beams"
    prompt_logprobs: str = "decoder_input_details"
    stop: str = "stop"
    dimensions: str = "dimensions"


TGI_NAMES = FieldNames()


@dataclass(frozen=True, slots=True)
class GenerationSpec:
    """A client's request for one prompt, by whichever API, before it is checked. The defaults are TGI's ways.

    `inputs` is a text, or token ids. `n` answers share a seed and differ in their noise. With `is_greedy` nothing is
    sampled, whatever the parameters say. With `has_openai_penalties` the frequency penalty counts the output's tokens,
    instead of weighing shares of all tokens. `raw_logprobs` is as in `Sampling`; `keep_stop`, `tells_special`,
    `wants_prompt_logprobs`, `side_inputs` and `shown_ids` are as in `Request`. `adapter` is the name of the adapter
    that is to answer, `names` are for errors. With `fills_context` an answer may be as short as the context leaves room
    for, however many tokens are asked for.
    """

    inputs: str | tuple[int, ...]
    parameters: Parameters
    n: int = 1
    is_greedy: bool = False
    keep_stop: bool = True
    tells_special: bool = True
    add_special_tokens: bool = True
    has_openai_penalties: bool = False
    raw_logprobs: bool = False
    wants_prompt_logprobs: bool = False
    shown_ids: frozenset[int] = frozenset()
    adapter: str | None = None
    side_inputs: tuple[SideInput, ...] = ()
    names: FieldNames = TGI_NAMES
    fills_context: bool = False

    @property
    def least_room(self) -> int | None:
        """How many tokens of an answer there must be room for behind the prompt, if that is said."""
        return 1 if self.fills_context else self.parameters.max_new_tokens

    @property
    def has_beams(self) -> bool:
        """Whether its answers are searched for by several beams."""
        return (self.parameters.num_beams or 1) > 1

    @property
    def num_answers(self) -> int:
        """How many answers are generated for this prompt."""
        if self.has_beams:
            return max(1, self.parameters.num_return_sequences or 1)
        return max(1, self.parameters.best_of or 1, self.n)

    @property
    def num_sequences(self) -> int:
        """How many sequences run for this prompt at once."""
        return self.parameters.num_beams or 1 if self.has_beams else self.num_answers
