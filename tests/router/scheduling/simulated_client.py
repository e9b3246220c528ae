"""What the simulation knows of a request and of a step in flight, apart from the scheduler's own record."""

import random
from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from penstock.contract.initial_state import InitialState
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.side_inputs import SideInput, adapter_of
from penstock.router.scheduling.guesser import PROPOSED, Alternative
from penstock.router.scheduling.sequence import Sequence
from tests.router.scheduling.shard_mirror import PARITIES, Mask, Resident, extend, sample


@dataclass(slots=True, eq=False)
class Client:
    """A request and the answer so far; `chain` is what the positions of `tokens` hold on a shard."""

    sequence: Sequence
    tokens: list[int]
    chain: list[int]
    salt: int
    side_inputs: tuple[SideInput, ...]
    kills_at: int | None = None
    """The length at which its next token takes the group down."""
    num_solo_deaths: int = 0
    """How often in a row the group died with nothing but this request in flight."""
    cleared_at: int = 0
    """The length at which that count begins anew."""
    num_passed: int = 0
    """How many that came later came before it while it waited."""
    pause: int = 0
    """Steps since its last row."""
    prompt_logprobs: dict[int, int] = field(default_factory=dict)
    """Of the prompt's tokens, by position."""

    @property
    def adapter(self) -> int:
        return adapter_of(self.side_inputs)

    @property
    def initial_state(self) -> InitialState:
        return InitialState(self.sequence.sampling, self.sequence.prompt_length, side_inputs={
            each.name: each.value for each in self.side_inputs})

    @property
    def needs_prompt_logprobs(self) -> bool:
        return self.sequence.wants_prompt_logprobs and len(self.prompt_logprobs) < self.sequence.prompt_length - 1

    @property
    def mask(self) -> Mask | None:
        """What a grammar allows next: even tokens or odd ones, by the answer's length. None: it has no grammar."""
        return self.mask_after(0)

    def mask_after(self, number: int) -> Mask | None:
        """What a grammar allows after `number` more tokens."""
        return PARITIES[(len(self.tokens) + number) % 2] if self.sequence.has_grammar else None


class Prophet:
    """Knows how an answer goes on, and tells the truth about half of the time, if it does not have the shards propose.
    """

    def __init__(self, client: Client, seed: int, has_proposals: bool = False) -> None:
        self._client = client
        self._has_proposals = has_proposals and not client.sequence.has_grammar
        self._asks = self._has_proposals
        self.unjudged = 0
        """How many proposals of a step that came back were not judged yet."""
        self._random = random.Random(seed)
        self._guess: list[int] = []
        self._share = 0.5

    def note(self, token_id: int) -> None:
        """Thinks anew."""
        assert not self.unjudged, "proposals are not judged before their tokens are noted"
        self._share = self._random.random()
        self._asks = self._has_proposals and self._random.random() < 0.5
        self._guess = []

    def force(self, token_ids: Items[int]) -> None:
        raise AssertionError("the simulation has no grammars that force tokens")

    def guess(self, number: int) -> tuple[list[int], float]:
        """The true next tokens up to some place, and others from there on."""
        client, chain = self._client, list(self._client.chain)
        while len(self._guess) < number:
            mask = client.mask_after(len(self._guess))
            for token_id in self._guess:
                extend(chain, token_id)
            truth = sample(chain[-1], client.salt, mask)
            chain = list(client.chain)
            self._guess.append(truth if self._random.random() < 0.8 else self._random.randint(2, 25))
        return [PROPOSED] * number if self._asks else self._guess[:number], self._share

    def alternative(self, number: int) -> Alternative | None:
        """Other tokens from some place on, of which all are right, none, or the first ones."""
        place = self._random.randrange(number)
        guessed, own = self._guess[:number], self._truths(number)
        others = own[:place + self._random.randint(1, number - place)]
        if others[:place] != guessed[:place] or self._random.random() < 0.3:
            others = [*guessed[:place], *(self._random.randint(2, 25) for _ in range(number - place))]
        return Alternative(others, place, self._random.random())

    def _truths(self, number: int) -> list[int]:
        client, chain, truths = self._client, list(self._client.chain), list[int]()
        while len(truths) < number:
            truths.append(sample(chain[-1], client.salt, client.mask_after(len(truths))))
            extend(chain, truths[-1])
        return truths

    def judge(self, number: int, num_right: int) -> None:
        assert self.unjudged == number >= num_right, f"{number} proposals are judged, there were {self.unjudged}"
        self.unjudged = 0


@dataclass(slots=True)
class Flight:
    """A plan in flight; each row with its client and the blocks that it had when planned; those of forks apart."""

    plan: Plan
    rows: list[tuple[Client, Row, tuple[int, ...]]]
    firsts: dict[int, Resident]
    forks: list[tuple[Client, Row]] = field(default_factory=list)

    def find_forks(self, clients: Iterable[Client]) -> list[Row]:
        """Finds the clients whose sequences have forks in the plan; returns the plan's other rows."""
        places = {id(row): place for place, row in enumerate(self.plan.rows)}
        for client in clients:
            own = [fork for fork in client.sequence.forks if id(fork.row) in places]
            for number, fork in enumerate(own, 1):
                before = self.plan.rows[places[id(fork.row)] - number]
                assert before.slot == client.sequence.slot, "a fork is not behind its sequence's row"
                assert before.num_drafts > 0, "a fork is beside a row that verifies nothing"
                assert not before.late_mask, "a fork has no mask, and its sequence has a grammar"
                assert fork.row.initial_state == client.initial_state, "a fork begins with another state"
                assert fork.row.token_ids[0] == client.tokens[-1], "a fork brings other tokens"
                assert fork.row.start + fork.row.num_inputs < client.sequence.max_length, "a fork goes beyond the end"
                self.forks.append((client, fork.row))
                self.firsts[fork.slot] = Resident(client.chain[:fork.row.start + 1], client.salt, client.adapter)
        of_forks = {id(row) for _, row in self.forks}
        return [row for row in self.plan.rows if id(row) not in of_forks]

    def find_firsts(self, rows: Iterable[Row], clients: Iterable[Client]) -> list[tuple[Client, Row]]:
        """Finds the clients of first rows: each belongs to an admitted sequence, in this order, or to a new beam."""
        found, admitted = list[tuple[Client, Row]](), deque(self.plan.admitted)
        by_slot = {client.sequence.slot: client for client in clients}
        for row in rows:
            if row.initial_state is None:
                continue
            client = by_slot[row.slot]
            if admitted and admitted[0].sequence_id == client.sequence.id:
                assert admitted.popleft().hit_tokens == row.start
            else:
                assert client.sequence.is_beam, "a sequence begins to run, and was not admitted"
            assert row.initial_state == client.initial_state, "another's adapter"
            self.firsts[row.slot] = Resident(client.chain[:row.start + 1], client.salt, client.adapter)
            found.append((client, row))
        assert not admitted, "a sequence was admitted and has no row"
        return found
