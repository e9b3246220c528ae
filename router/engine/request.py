"""The request as the engine takes it: valid, tokenised and complete."""

from dataclasses import dataclass

from penstock.contract.pooling import Pooling
from penstock.contract.sampling import Sampling
from penstock.contract.side_inputs import SideInput
from penstock.router.adapters.registry import Adapter
from penstock.router.engine.trace import Trace
from penstock.router.grammar.matcher import Grammar
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.scheduling.beam_search import BeamSettings
from penstock.router.scheduling.priorities import BACKGROUND
from penstock.router.scheduling.promise import Deadline
from penstock.router.scheduling.tenant import Tenant


@dataclass(frozen=True, slots=True)
class Request:
    """Describes one answer to one prompt, or those of a beam search, or what is to be made of one text. Only
    generation/validation.py and pooling/validation.py make it, so nothing is checked again.

    `max_new_tokens` is what fits: prompt + max_new_tokens never exceeds the limit on total tokens. The answer's text is
    cut at the end of a stop string if `keep_stop`, otherwise before it, and so it is for a token of `stop_token_ids`,
    which ends the answer as the model's own end token does. Neither ends the answer before `sampling.min_tokens`.
    """

    input_ids: tuple[int, ...]
    sampling: Sampling
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    keep_stop: bool = True
    tells_special: bool = True
    """Whether the event of a special token has its text, which is no part of the answer, where stops are kept."""
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    grammar: Grammar | GrammarSpec | None = None
    """The grammar that the answer must follow; what it is compiled from where the engine is in another process."""
    adapter: Adapter | None = None
    """The adapter that changes the model for this answer."""
    beams: BeamSettings | None = None
    """How its answers are searched for by beams, if they are; then the request is one for all of them."""
    wants_prompt_logprobs: bool = False
    bits: tuple[str, ...] = ()
    """The facts that must decide the answer's bits, as `Facts.bits`; empty if any will do."""
    needs_bits: bool = False
    """Whether the answer must have these bits, for a part of it is known, and not merely should."""
    pooling: Pooling | None = None
    """The vector or scores that the shards make of the prompt, for a request that is not for an answer."""
    side_inputs: tuple[SideInput, ...] = ()
    """All that the answer depends on beside its prompt and its adapter."""
    shown_ids: frozenset[int] = frozenset()
    """The special tokens whose text is part of the answer."""
    salt: str = ""
    """Shares keys and values with none but the requests that have the same."""
    priority: int = 0
    """Puts it before those of a higher one, or, as `BACKGROUND`, behind all others: `scheduling/priorities.py`."""
    tenant: Tenant | None = None
    """Whose request it is, where something was granted to tenants that the scheduler must know."""
    deadline: Deadline | None = None
    """By when the whole answer has to be there, if it has to."""
    trace: Trace | None = None
    """The trace that notes what happens to the request, if it is traced."""

    @property
    def is_background(self) -> bool:
        """Whether it gets only what no other request waits for."""
        return self.priority == BACKGROUND
