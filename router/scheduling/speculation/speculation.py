"""Says how many guesses of which sequences a step verifies: as many as make it yield the most tokens a second."""

from collections import Counter
from collections.abc import Collection, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.guesser import PROPOSED, Alternative, Guesser
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.speculation.proposing_cost import ProposingCost
from penstock.router.scheduling.speculation.step_cost import StepCost

PROBE_EVERY = 64
"""How many steps in a row may pass up guesses that are likely to be right, for what such steps have cost, before one
tries again: what they cost may have been a moment's."""
PROBE_SHARE = 0.5
"""How likely such guesses are at least."""
MOST_GUESSES = 128
"""Of one step: more are not compared, for planning takes time too."""
LEAST_GAIN = 1.03
"""By how much a step with guesses must yield more a second than one without, for its cost is not known well."""
LEAST_GAIN_PROPOSED = 1.2
"""The same of a step with proposals. They are made while nothing else runs, and the step after them is planned only
when they were verified: the shards wait for the router meanwhile, which no step's time shows."""
WORTH_WAITING = 1.0
"""How many right guesses a sequence must expect, since it sits out the steps that are planned before its last token is
known, while others take part in them."""
WORTH_WAITING_TOGETHER = 0.3
"""The same where all sequences guess, so that none takes part in such a step, and there is none."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """The guesses of one sequence, of which each is right with `share` if those before it are."""

    sequence: Sequence
    token_ids: list[int]
    share: float
    skipped: int
    """How many guesses before them are for tokens of steps in flight."""

    @property
    def is_proposed(self) -> bool:
        return PROPOSED in self.token_ids

    def value(self, index: int) -> float:
        """Returns how likely it is that the guess of this number yields a token: those before it must be right too."""
        return float(self.share ** (index + 1 + self.skipped))

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
        self._num_passed = 0
        self.cost = StepCost()
        self._proposing = ProposingCost(self.cost)

    def observe(self, plan: Plan, result: StepResult) -> None:
        """Takes in how long a step took."""
        self.cost.observe(plan.num_tokens, result.forward_time + result.sample_time)
        self._proposing.observe(plan, result.draft_time)

    def choose_beside(
        self, running: Collection[Sequence], prompts: Collection[Sequence], spare: int
    ) -> dict[int, tuple[int, ...]]:
        """Returns the guesses to verify, as `choose` does, where a step has `spare` tokens beside its rows. They leave
        half of these to the prompts that are computed or about to be."""
        left = sum(max(s.prefill_end, len(s.tokens)) - s.computed for s in prompts)
        prompt_tokens = min(left, -(-spare // 2))
        return self.choose(running, spare - prompt_tokens, len(prompts), prompt_tokens)

    def choose(
        self, running: Collection[Sequence], most_tokens: int, num_prompts: int = 0, prompt_tokens: int = 0
    ) -> dict[int, tuple[int, ...]]:
        """Returns the guesses to verify, `most_tokens` in all, by the ids of the sequences that have any. Those for a
        sequence that a step in flight names are for later, unless they are proposals: it waits for that step, and is
        planned when it is back.

        Beside the running sequences the step may compute `prompt_tokens` of `num_prompts` prompts. While some sit out
        nothing is proposed: those that ask while others are verified would take turns with them for ever, in steps of a
        part of the batch. So all come to ask in the same step.
        """
        rows = [sequence for sequence in running if sequence.wants_decode and not sequence.is_held_back]
        may_ask = not any(sequence.is_held_back for sequence in running)
        offers = {sequence.id: offer for sequence in rows
                  if (offer := self._offer(sequence)) and (may_ask or not offer.is_proposed)}
        most = min(most_tokens, self._most_samples - len(rows) - num_prompts)
        numbers = self._allot(offers, len(rows), len(rows) + prompt_tokens, max(0, most))
        is_alone = all(sequence.id in numbers for sequence in running if not sequence.is_prefilling)
        least = WORTH_WAITING_TOGETHER if is_alone else WORTH_WAITING
        return {sequence_id: tuple(offers[sequence_id].token_ids[:number]) for sequence_id, number in numbers.items()
                if offers[sequence_id].expected(number) >= least}

    def choose_forks(
        self, rows: Collection[tuple[Sequence, Row]], most_tokens: int
    ) -> list[tuple[Sequence, Alternative]]:
        """Returns the forks to verify beside the rows of a step, of `most_tokens` in all: those with which it yields
        more a second. There is one mask for a sequence, so one with a grammar has no fork."""
        num_tokens = sum(row.num_inputs for _, row in rows)
        left = min(most_tokens, self.samples_left(rows))
        yielded = float(len(rows))
        verifying: list[tuple[_Offer, Guesser, Row]] = []
        for sequence, row in rows:
            if sequence.guesser is not None and row.num_guesses:
                offer = _Offer(sequence, *sequence.guesser.guess(row.num_guesses), skipped=0)
                yielded += offer.expected(row.num_guesses)
                verifying.append((offer, sequence.guesser, row))
        forks: list[tuple[Sequence, Alternative]] = []
        for offer, guesser, row in verifying:
            may_fork = row.num_drafts and not offer.sequence.has_grammar and offer.sequence.status is Status.RUNNING
            other = guesser.alternative(row.num_drafts) if may_fork and row.num_drafts < left else None
            if other is None:
                continue
            size, more = len(other.token_ids) + 1, yielded + other.expected(offer.share)
            rate = yielded / self.cost.seconds(num_tokens)
            if more / self.cost.seconds(num_tokens + size) > LEAST_GAIN * rate:
                forks.append((offer.sequence, other))
                num_tokens, left, yielded = num_tokens + size, left - size, more
        return forks

    def samples_left(self, rows: Collection[tuple[Sequence, Row]]) -> int:
        """Returns how many tokens a step may sample beside those of its rows."""
        return self._most_samples - sum(row.num_guesses + 1 for sequence, own in rows
                                        for row in (own, *(fork.row for fork in sequence.forks)))

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
            ((offer.value(index), -index, sequence_id) for sequence_id, offer in offers.items()
             for index in range(len(offer.token_ids))),
            reverse=True)[:min(most_tokens, MOST_GUESSES)]
        best, gain = self._best(values, offers, num_rows, num_tokens)
        if gain < LEAST_GAIN_PROPOSED and any(offers[each[2]].is_proposed for each in values[:best]):
            values = [each for each in values if not offers[each[2]].is_proposed]
            best, _ = self._best(values, offers, num_rows, num_tokens)
        if best or not values or values[0][0] < PROBE_SHARE:
            self._num_passed = 0
            return Counter(sequence_id for _, _, sequence_id in values[:best])
        self._num_passed += 1
        if self._num_passed < PROBE_EVERY:
            return {}
        self._num_passed, probed = 0, values[0][2]
        return {probed: sum(sequence_id == probed for _, _, sequence_id in values)}

    def _best(
        self, values: Items[tuple[float, int, int]], offers: Mapping[int, _Offer], num_rows: int, num_tokens: int
    ) -> tuple[int, float]:
        """Returns how many of the guesses make the step yield most a second, and by how much more than with none: each
        is its value, its place among its sequence's, less than 0, and the sequence's id."""
        yielded = float(num_rows)
        plain = yielded / self.cost.seconds(num_tokens)
        best, rate = 0, LEAST_GAIN * plain
        rounds, asking = 0, 0
        for number, (value, place, sequence_id) in enumerate(values, 1):
            yielded += value
            if offers[sequence_id].is_proposed:
                rounds, asking = max(rounds, 1 - place), asking + (place == 0)
            seconds = self.cost.seconds(num_tokens + number) + self._proposing.seconds(rounds, asking)
            if (new := yielded / seconds) > rate:
                best, rate = number, new
        return best, rate / plain if plain else 1.0


def sits_out(sequence: Sequence, guesses: Items[int]) -> bool:
    """Tells whether a sequence is to be planned only when its step in flight is back: guesses follow its last token,
    which the shards alone know before. They know it when the draft model proposes."""
    return sequence.in_flight > 0 and bool(guesses) and PROPOSED not in guesses
