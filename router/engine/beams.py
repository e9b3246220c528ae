"""The beam search of a request: the sequences that are its beams, and what becomes of them in each step."""

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

from penstock.contract.facts import Facts
from penstock.contract.row_result import TopLogprobs
from penstock.router.engine.request import Request
from penstock.router.engine.sequences import sequence_of
from penstock.router.engine.stop_text import StopText
from penstock.router.grammar.beam_cursor import BeamCursor
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.scheduling.beam_search import BeamSearch, Candidate, FoundAnswer, end_tokens, ways_on
from penstock.router.scheduling.confirmed import Candidates
from penstock.router.scheduling.death_record import DeathRecord
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.usage import Usage


@dataclass(frozen=True, slots=True)
class CarriedBeams:
    """How far a beam search is, and the record of each of its beams, for another engine to go on with."""

    search: BeamSearch
    records: Items[DeathRecord]


@dataclass(slots=True)
class _Beam:
    """A beam's sequence, where it is in the grammar, and its text as far as stop strings matter."""

    sequence: Sequence
    cursor: BeamCursor | None
    text: StopText | None
    top: TopLogprobs | None = None
    """The likeliest next tokens, once they have come."""

    @property
    def id(self) -> int:
        return self.sequence.id


class Beams:
    """Runs the search of a request in `scheduler`. Each beam is a sequence there, whose id comes of `new_id`.

    Once the candidates of all beams have come the search chooses: a beam goes on by the best of its candidates that is
    chosen, others become forks of it, and a beam without any ends. `text` follows the text of an answer, for a request
    with stop strings.
    """

    def __init__(
        self, request: Request, facts: Facts, scheduler: Scheduler, new_id: Callable[[], int], text: StopText | None,
        usage: Usage,
    ) -> None:
        assert request.beams is not None
        self._request = request
        self._scheduler = scheduler
        self._new_id = new_id
        self._usage = usage
        self._ends = end_tokens(
            request.stop_token_ids, facts.eos_token_ids, request.ignore_eos, has_grammar=request.grammar is not None)
        self._search = BeamSearch(request.beams, request.max_new_tokens, len(self._ends))
        self._sampling = replace(
            request.sampling, top_n=min(self._search.num_candidates, facts.vocab_size), of_logprobs=True,
            raw_logprobs=False)
        self._text = text
        self._beams: list[_Beam] = []
        self._age = 0

    @property
    def ids(self) -> list[int]:
        """The ids of the beams' sequences."""
        return [beam.id for beam in self._beams]

    @property
    def length(self) -> int:
        """How many tokens each of the beams has."""
        return self._search.length

    def begin(self, age: int, carried: CarriedBeams | None) -> None:
        """Adds the beams to the scheduler: one without tokens, or those that another engine has run to here."""
        self._age = age
        if carried is not None:
            self._search = carried.search
        records = [DeathRecord()] if carried is None else carried.records
        for beam, record in zip(self._search.beams, records, strict=True):
            made = self._sequence([*self._request.input_ids, *beam.token_ids], record)
            self._beams.append(_Beam(made, self._first_cursor(made), self._first_text(beam.token_ids)))
            self._scheduler.add(made)

    def carry(self) -> tuple[int, CarriedBeams]:
        """Takes the beams from the scheduler, and returns the age of the request with them. Candidates that have come
        are computed once more elsewhere."""
        records = [self._scheduler.release(beam.id).record for beam in self._beams]
        return self._age, CarriedBeams(self._search, records)

    def cursor(self, sequence_id: int) -> BeamCursor | None:
        """Returns where a beam is in the grammar, if there is one."""
        return self._find(sequence_id).cursor

    def take(self, found: Candidates) -> bool:
        """Takes the candidates of a beam; returns whether those of all beams are there."""
        self._find(found.sequence_id).top = found.top_logprobs
        return all(beam.top is not None for beam in self._beams)

    def advance(self) -> list[FoundAnswer] | None:
        """Chooses by which candidates the search goes on; once it is over, returns the answers that it has found."""
        candidates = self._search.choose([beam.top or () for beam in self._beams])
        texts = {(each.beam, each.token_id): self._text_of(each) for each in candidates}
        reasons = [self._reason(each, is_stop=texts[each.beam, each.token_id][1]) for each in candidates]
        going = self._search.advance(candidates, reasons)
        if not going:
            return self._search.answers
        before, self._beams = self._beams, []
        ended, ways = ways_on(going, len(before))
        for place in ended:
            self._scheduler.finish(before[place].id, FinishReason.CANCELLED)
        for each, is_fork in ways:
            go_on = self._fork if is_fork else self._extend
            go_on(before[each.beam], each.token_id, texts[each.beam, each.token_id][0])
        return None

    def _extend(self, beam: _Beam, token_id: int, text: StopText | None) -> None:
        cursor = beam.cursor and beam.cursor.follow(beam.id, token_id)
        self._beams.append(_Beam(beam.sequence, cursor, text))
        self._scheduler.extend(beam.id, token_id)

    def _fork(self, beam: _Beam, token_id: int, text: StopText | None) -> None:
        """Begins a beam that goes on otherwise than another one, which has been extended."""
        fork = self._sequence([*beam.sequence.tokens[:-1], token_id], replace(beam.sequence.record))
        self._beams.append(_Beam(fork, beam.cursor and beam.cursor.follow(fork.id, token_id), text))
        self._scheduler.fork(fork, beam.id)

    def _sequence(self, tokens: list[int], record: DeathRecord) -> Sequence:
        return sequence_of(self._request, self._new_id(), self._age, record, tokens, self._usage,
                           beam_sampling=self._sampling)

    def _first_cursor(self, made: Sequence) -> BeamCursor | None:
        grammar = self._request.grammar
        assert not isinstance(grammar, GrammarSpec), "the grammar is not compiled"
        return None if grammar is None else BeamCursor(made.id, grammar, made.tokens[made.prompt_length:])

    def _first_text(self, output: Items[int]) -> StopText | None:
        if self._text is None:
            return None
        text = self._text.fork()
        for token_id in output:
            text.push(token_id)
        return text

    def _text_of(self, candidate: Candidate) -> tuple[StopText | None, bool]:
        """Returns the text behind a candidate, and whether a stop string completes with it."""
        before = self._beams[candidate.beam].text
        if before is None:
            return None, False
        text = before.fork()
        return text, text.push(candidate.token_id)[1] is not None

    def _reason(self, candidate: Candidate, is_stop: bool) -> FinishReason | None:
        """Returns why a candidate ends, if it does."""
        if is_stop:
            return FinishReason.STOP_SEQUENCE
        if self._search.length + 1 == self._request.max_new_tokens:
            return FinishReason.LENGTH
        return FinishReason.EOS_TOKEN if candidate.token_id in self._ends else None

    def _find(self, sequence_id: int) -> _Beam:
        return next(beam for beam in self._beams if beam.id == sequence_id)
