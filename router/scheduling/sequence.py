"""The sequence: a request as the scheduler sees it."""

from dataclasses import dataclass, field
from enum import Enum

from penstock.contract.output import Output
from penstock.contract.pooling import Task
from penstock.contract.sampling import Sampling
from penstock.contract.side_inputs import TRACE, SideInput, adapter_of, namespace_of
from penstock.router.scheduling.cached_block import Node
from penstock.router.scheduling.death_record import DeathRecord
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.fork import Fork, GuessFork
from penstock.router.scheduling.guesser import Guesser
from penstock.router.scheduling.priorities import BACKGROUND, place_of
from penstock.router.scheduling.promise import Promise
from penstock.router.scheduling.step_totals import StepTotals
from penstock.router.scheduling.tenant import Tenant
from penstock.router.scheduling.usage import Usage
from penstock.router.scheduling.wait_reasons import WaitReason


class Status(Enum):
    """Tells where a sequence is. A DRAINING one was preempted, but a step in flight still names it."""

    WAITING = "waiting"
    RUNNING = "running"
    DRAINING = "draining"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """Holds the tokens, lengths, blocks and slot of one request. Only the scheduler writes to it.

    By position, its tokens are::

        0 ............. computed ............. len(tokens) ........ planned_length
        |  K, V planned    |  still to plan       |  promised: planned, not yet back  |

    `computed` counts positions that some plan covers, `promised` the samples that a step in flight will yield,
    `in_flight` the steps in flight that name the sequence. `prefill_end` is the length at which the current
    residency's prefill ends: prompt and output, if it was preempted before.
    """

    id: int
    """Names it in this scheduler; larger than those of the sequences that came before."""
    tokens: list[int]
    """The prompt, then the confirmed output."""
    prompt_length: int
    max_length: int
    """The most tokens of prompt and output together; one that is `pooled` has no output."""
    sampling: Sampling
    side_inputs: tuple[SideInput, ...] = ()
    """All that it brings to the shards beside its tokens, each of another kind."""
    salt: str = ""
    """Only sequences of one salt share blocks."""
    namespace: str = field(default="", init=False)
    """Only sequences of one namespace share blocks."""
    adapter: int = field(default=0, init=False)
    """The number of the adapter that computes it, 0 for none."""
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    """The tokens that end it as the model's end token does, also where `ignore_eos` is set."""
    has_grammar: bool = False
    """Whether its samples wait for masks, from the output's token `num_free` on."""
    num_free: int = 0
    wants_prompt_logprobs: bool = False
    """The logprobs of the prompt's tokens are wanted. Until all are there nothing is taken from the prefix cache."""
    confirmed_only: bool = False
    """Whether nothing is planned for it while a step in flight names it."""
    is_beam: bool = False
    """Whether it is a beam of a search, and so `confirmed_only`: a step finds candidates of its next token, and the
    search says by which of them it goes on."""
    is_undecided: bool = field(default=False, init=False)
    """Whether candidates of its next token have come and none is chosen yet. Until then it gets no rows."""
    pooled: Task | None = None
    """The wish for a vector or scores, which its last row yields in place of a token, if there is one."""
    outputs: tuple[Output, Output] = field(default=(Output.NONE, Output.SAMPLE), init=False)
    """The results of a row amid its prefill, and of the last one; where each token has a vector every row yields some.
    """
    computes_all: bool = False
    """Whether nothing is ever taken from the prefix cache, for what it yields is made of all of its tokens."""
    guesser: Guesser | None = None
    """Guesses its next tokens, if they may be guessed."""
    status: Status = Status.WAITING
    finish_reason: FinishReason | None = None
    slot: int | None = None
    blocks: list[int] = field(default_factory=list)
    forks: list[GuessFork] = field(default_factory=list)
    """Other guesses of its next tokens, which a step in flight verifies."""
    is_told: bool = False
    """Whether a plan has named it since it has its slot."""
    num_blocks_sent: int = 0
    num_blocks_cached: int = 0
    computed: int = 0
    prefill_end: int = 0
    promised: int = 0
    in_flight: int = 0
    is_verifying: bool = False
    """Whether its last row had drafts: the shards know its last token only when the next row brings it."""
    prompt_logprobs_end: int = 1
    """The first position of the prompt whose logprob may still be missing; the token at position 0 has none."""
    matched: Node | None = None
    """The last cached block that it matched, while it waits."""
    num_passed: int = 0
    """How often a younger sequence was admitted before it."""
    age: int = -1
    """The arrival number, which the sequence keeps when it is preempted, and in whichever group: its id by default."""
    priority: int = 0
    """Puts it before those of a higher one, as `priorities.py` says."""
    order: tuple[int, int] = field(default=(0, 0), init=False)
    """Its place among all: those with lower ones come first, and those with higher ones are preempted first."""
    is_background: bool = field(default=False, init=False)
    """Whether it gets only what nobody else waits for."""
    tenant: Tenant | None = None
    """Whose request it is, if anything was granted to tenants."""
    is_charged: bool = False
    """Whether its prompt was counted as service of its tenant."""
    promise: Promise | None = None
    """By when it is to end, if that was promised."""
    record: DeathRecord = field(default_factory=DeathRecord)
    """Its record from deaths of groups."""
    usage: Usage = field(default_factory=Usage)
    """The usage of its request, which its other sequences share."""
    charged_at: float = 0.0
    """Up to when it was charged for its keys and values."""
    computed_at: StepTotals | None = None
    """The steps of its group up to the one that computed its prompt, or computed it anew."""
    wait_cause: str | None = None
    """The cause of its waiting, if that is another one than the reasons of the plans."""
    waits_since: float = 0.0
    counts_before: dict[WaitReason, float] | None = None
    """For how long others had waited, by reason, when it began to wait for the reasons of the plans."""

    def __post_init__(self) -> None:
        if self.side_inputs or self.salt:
            self.namespace, self.adapter = namespace_of(self.side_inputs, self.salt), adapter_of(self.side_inputs)
        if self.pooled is not None:
            self.outputs = Output.POOL if self.pooled is Task.EMBED_ALL else Output.NONE, Output.POOL
        self.confirmed_only |= self.is_beam
        if self.age < 0:
            self.age = self.id
        self.order = place_of(self.age, self.priority)
        self.is_background = self.priority == BACKGROUND

    @property
    def is_traced(self) -> bool:
        """Whether its request is traced."""
        return any(each.name == TRACE for each in self.side_inputs)

    @property
    def least_length(self) -> int:
        """How many tokens it comes to at least: one more, unless it yields none."""
        return len(self.tokens) + (self.pooled is None)

    @property
    def is_suspect(self) -> bool:
        """Whether a step that named it was in flight when the group died, and has not been repeated since."""
        return self.record.cleared_at is not None

    @property
    def length_in_flight(self) -> int:
        """How many tokens it will have once what the steps in flight do for it is done: at least one more."""
        return len(self.tokens) + max(1, self.promised)

    @property
    def planned_length(self) -> int:
        """How many tokens it will have once all steps in flight are back, if none of them ends it."""
        return len(self.tokens) + self.promised

    @property
    def num_blocks_held(self) -> int:
        """How many blocks return when it lets go of all it holds."""
        return len(self.blocks) + self.num_blocks_forked

    @property
    def num_blocks_forked(self) -> int:
        """How many blocks its forks hold, which return when the step in flight is back."""
        return sum(len(fork.blocks) for fork in self.forks)

    @property
    def unsent_blocks(self) -> tuple[int, ...]:
        """The blocks that no plan has named yet."""
        return tuple(self.blocks[self.num_blocks_sent:])

    @property
    def needs_all_tokens(self) -> bool:
        """Whether all tokens have to be computed, as for what is made of them, or for logprobs of the prompt as long as
        some are missing."""
        return self.computes_all or (self.wants_prompt_logprobs and self.prompt_logprobs_end < self.prompt_length)

    def prompt_logprob_ids(self, start: int, end: int) -> tuple[int, ...]:
        """Returns the tokens that follow those from `start` to `end`, if their logprobs are still wanted."""
        last = min(end + 1, self.prompt_length)
        is_missing = self.wants_prompt_logprobs and self.prompt_logprobs_end < last
        return tuple(self.tokens[start + 1:last]) if is_missing else ()

    @property
    def has_promise(self) -> bool:
        """Whether it is to end by a time that has not passed."""
        return self.promise is not None and not self.promise.is_over

    @property
    def is_prefilling(self) -> bool:
        return self.computed < self.prefill_end

    @property
    def wants_decode(self) -> bool:
        """Whether a next token is still to be planned."""
        return not self.is_prefilling and not self.is_undecided and self.planned_length < self.max_length

    @property
    def is_held_back(self) -> bool:
        """Whether nothing may be planned for it until the steps in flight that name it are back."""
        return (self.confirmed_only or self.is_verifying) and self.in_flight > 0

    def take(self, fork: Fork) -> None:
        """Goes on where a fork has come to, with whose slot and blocks it exchanges its own."""
        shared = fork.num_shared
        self.slot, fork.slot = fork.slot, self.slot
        self.blocks[shared:], fork.blocks = fork.blocks, self.blocks[shared:]
        self.num_blocks_sent = len(self.blocks)
