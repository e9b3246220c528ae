"""How a request begins in an engine: its sequences in the scheduler, and its state in the table of requests."""

from penstock.contract.facts import Facts
from penstock.router.engine.beams import Beams
from penstock.router.engine.errors import refusal
from penstock.router.engine.guessers import Guessers
from penstock.router.engine.request_table import RequestState, RequestTable
from penstock.router.engine.sequences import sequence_of
from penstock.router.engine.transfer import Transfer
from penstock.router.grammar.cursor import GrammarCursor
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.scheduling.promise import Deadline
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.waits import Return


class Starting:
    """Starts requests in `scheduler`, new ones and those that another engine has run to some place. Where tokens are
    guessed, up to `most_forced` of those that a grammar forces are."""

    def __init__(
        self, scheduler: Scheduler, requests: RequestTable, facts: Facts, guessers: Guessers, most_forced: int
    ) -> None:
        self._scheduler = scheduler
        self._requests = requests
        self._facts = facts
        self._guessers = guessers
        self._most_forced = most_forced
        self._next_id = 0

    def start(self, transfer: Transfer, has_group: bool) -> None:
        """Starts a request that the limits allow. Raises RouterError if it is a new one that would miss its deadline,
        or nobody knows whether it would, since the group is away."""
        if transfer.receiver.request.beams is None:
            self._start_one(transfer, has_group)
        else:
            self._start_beams(transfer)

    def _start_one(self, transfer: Transfer, has_group: bool) -> None:
        receiver, request, sequence_id = transfer.receiver, transfer.receiver.request, self._new_id()
        tokens = [*request.input_ids, *transfer.output]
        guesser = self._guessers.of(request, tokens, transfer.record)
        assert not isinstance(request.grammar, GrammarSpec), "the grammar is not compiled"
        sequence = sequence_of(request, sequence_id, transfer.age, transfer.record, tokens, receiver.usage,
                               guesser=guesser, pools_last=self._facts.pools_last)
        if request.deadline is not None and not request.deadline.is_promised and transfer.left_at is None:
            self._judge(sequence, request.deadline, has_group)
        receiver.bind(lambda: self._requests.cancel(sequence_id))
        cursor = None if request.grammar is None else GrammarCursor(
            sequence_id, request.grammar, transfer.output, most_forced=0 if guesser is None else self._most_forced)
        self._requests[sequence_id] = RequestState(receiver, cursor, guesser, left_at=transfer.left_at)
        if transfer.left_at is not None and receiver.started_at is not None:
            sequence.wait_cause = Return.MOVED
        self._scheduler.add(sequence)

    def _judge(self, sequence: Sequence, deadline: Deadline, has_group: bool) -> None:
        verdict = self._scheduler.promises.judge(sequence, has_group)
        if not verdict.can_be_met:
            raise refusal(deadline, verdict, sequence.max_length - len(sequence.tokens))

    def _start_beams(self, transfer: Transfer) -> None:
        receiver = transfer.receiver
        beams = Beams(receiver.request, self._facts, self._scheduler, self._new_id,
                      receiver.stop_text() if receiver.request.stop else None, receiver.usage)
        receiver.bind(lambda: self._requests.cancel(beams.ids[0]))
        beams.begin(transfer.age, transfer.beams)
        state = RequestState(receiver, beams=beams, left_at=transfer.left_at)
        self._requests.update(dict.fromkeys(beams.ids, state))

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1
