"""Says how many guesses of which sequences a step verifies: as many as make it yield the most tokens a second."""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

from penstock.router.scheduling.plan import Plan, StepResult
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.speculation.guesser import PROPOSED
from penstock.router.scheduling.speculation.proposing_cost import ProposingCost
from penstock.router.scheduling.speculation.step_cost import StepCost

LEAST_GAIN = 1.03
"""By how much a step with guesses must yield more a second than one without, for its cost is not known well."""
LEAST_GAIN_PROPOSED = 1.2
"""The same of a step with proposals. They are made while nothing else runs, and the step after them is planned only
when they were verified: the shards wait for the router meanwhile, which no step's time shows."""
WORTH_WAITING = 1.0
"""How many right guesses a sequence must expect to sit out the step that is planned before its last token is known,
while others take part in it. If none does, a step sat out costs less."""
WORTH_WAITING_TOGETHER = 0.3


@dataclass(frozen=True, slots=True)
class _Offer:
    """The guesses of one sequence, of which each is right with `share` if those before it are."""

    sequence: Sequence
    token_ids: list[int]
    share: float
    skipped: int
    """How many guesses before these are for tokens of steps in flight."""

    @property
    def is_proposed(self) -> bool:
        return PROPOSED in self.token_ids

    def value(self, index: int) -> float:
        """Returns how likely it is that the guess of this number yields a token: those before it must be right too."""
        value: float = self.share ** (index + 1 + self.skipped)
        return value

    def expected(self, number: int) -> float:
        """Returns how many of the first guesses are right, on average."""
        return sum(self.value(index) for index in range(number))


class Speculation:
    """Chooses the guesses of each step, at most `most` for a sequence, by what each is likely to yield and by what a
    token more, or a round of proposals, has cost. With `cost` unknown it tries a few. A step samples at most
    `most_samples` tokens."""

    def __init__(self, most: int, most_samples: int) -> None:
        self._most = most
        self._most_samples = most_samples
        self.cost = StepCost()
        self._proposing = ProposingCost(self.cost)

    def observe(self, plan: Plan, result: StepResult) -> None:
        """Takes in how long a step took."""
        self.cost.observe(plan.num_tokens, result.forward_time + result.sample_time)
        self._proposing.observe(plan, result.draft_time)

    def choose(
        self, ready: Iterable[Sequence], most_tokens: int, other_tokens: int = 0, num_out: int = 0
    ) -> dict[int, tuple[int, ...]]:
        """Returns the guesses to verify, `most_tokens` in all, by the ids of the sequences that have any; those for a
        sequence that a step in flight names tell that it is to be planned when that step is back, unless they are
        proposals. The step will have `other_tokens` beside those of the sequences that are ready for their next token.

        While `num_out` others sit out, nothing is proposed: those that ask while others are verified would take turns
        with them for ever, in steps of a part of the batch. So all come to ask in the same step.
        """
        rows = [sequence for sequence in ready if sequence.wants_decode]
        offers = {sequence.id: offer for sequence in rows
                  if (offer := self._offer(sequence)) and not (num_out and offer.is_proposed)}
        numbers = self._allot(offers, len(rows), len(rows) + other_tokens,
                              min(most_tokens, self._most_samples - len(rows)))
        is_alone = all(sequence.id in numbers for sequence in rows)
        least = WORTH_WAITING_TOGETHER if is_alone else WORTH_WAITING
        return {
            id: tuple(offers[id].token_ids[:number]) for id, number in numbers.items()
            if not (offers[id].sequence.in_flight or offers[id].is_proposed) or offers[id].expected(number) >= least}

    def _offer(self, sequence: Sequence) -> _Offer | None:
        if sequence.guesser is None or sequence.is_suspect:
            return None
        skipped = sequence.promised
        most = min(self._most, sequence.max_length - sequence.planned_length - 1)
        if most <= 0:
            return None
        token_ids, share = sequence.guesser.guess(most + skipped)
        if len(token_ids) <= skipped:
            return None
        return _Offer(sequence, token_ids[skipped:], share, 0 if PROPOSED in token_ids else skipped)

    def _allot(
        self, offers: Mapping[int, _Offer], num_rows: int, num_tokens: int, most_tokens: int
    ) -> dict[int, int]:
        """Returns how many guesses each sequence gets, by id. The likeliest come first, until one more would make the
        step yield less a second."""
        values = sorted(
            ((offer.value(index), -index, id) for id, offer in offers.items() for index in range(len(offer.token_ids))),
            reverse=True)[:max(0, most_tokens)]
        best, gain = self._best(values, offers, num_rows, num_tokens)
        if gain < LEAST_GAIN_PROPOSED and any(offers[id].is_proposed for _, _, id in values[:best]):
            values = [each for each in values if not offers[each[2]].is_proposed]
            best, gain = self._best(values, offers, num_rows, num_tokens)
        numbers: dict[int, int] = {}
        for _, _, id in values[:best]:
            numbers[id] = numbers.get(id, 0) + 1
        return numbers

    def _best(
        self, values: Items[tuple[float, int, int]], offers: Mapping[int, _Offer], num_rows: int, num_tokens: int
    ) -> tuple[int, float]:
        """Returns how many of the guesses make the step yield most a second, and by how much more than with none: each
        is its value, its place among its sequence's, less than 0, and the sequence's id."""
        yielded = float(num_rows)
        plain = yielded / self.cost.seconds(num_tokens)
        best, rate = 0, LEAST_GAIN * plain
        rounds, asking = 0, 0
        for number, (value, place, id) in enumerate(values, 1):
            yielded += value
            if offers[id].is_proposed:
                rounds, asking = max(rounds, 1 - place), asking + (place == 0)
            seconds = self.cost.seconds(num_tokens + number) + self._proposing.seconds(rounds, asking)
            if (new := yielded / seconds) > rate:
                best, rate = number, new
        return best, rate / plain if plain else 1.0


def sits_out(sequence: Sequence, guesses: Items[int]) -> bool:
    """Tells whether a sequence is to be planned only when its step in flight is back: guesses follow its last token,
    which the shards alone know before. They know it when the draft model proposes."""
    return sequence.in_flight > 0 and bool(guesses) and PROPOSED not in guesses
