"""Finds the sequence that kills its group, by bisection, while all others go on.

All sequences that ran when the group died are suspected, and return together with everything else: most often the
machine was at fault, and one replay at full batch is all that the death costs. If the group dies again with suspects in
flight, one of them is probably to blame. They are halved: the first half runs, beside what nobody suspects, and the
second waits until all of the first are cleared or one more death has narrowed them down. What was in flight with them
for the first time may be to blame as well, and is tried together, behind both halves; what was cleared before is
pardoned `MAX_PARDONS` times. The last one left of a half runs alone, so that no other can be blamed for its deaths, and
is given up after `MAX_SOLO_DEATHS`.

A sequence that kills whatever runs it causes at most ceil(log2 n) + 4 deaths, if no more than n sequences were in
flight in any of them: one that accuses it, ceil(log2 n) until it is alone, and the last three. So does one that arrives
while others are on trial. One that was cleared of another death, and turns deadly while others are still on trial for
that, causes up to `MAX_PARDONS` more.

Where there are other groups, what was suspected once goes on there at once. What has been narrowed down stays with the
group that died of it, so that it kills no other; if that does not come back, it goes on alone elsewhere.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from penstock.router.scheduling.sequence import Sequence

MAX_DEATHS_GUESSING = 2
"""How often the group may die while guesses of a sequence are verified, before nothing is guessed of it any more: a
wrong guess may be what kills."""
MAX_SOLO_DEATHS = 3
"""How often in a row the group may die with nothing but one sequence in flight before that sequence is given up."""
MAX_PARDONS = 3
"""How often a sequence that was cleared may be in flight when suspects die before it is accused again."""


@dataclass(slots=True)
class Cohort:
    """Suspects that run at the same time, oldest first; one that `is_alone` has a single member, which runs beside
    nothing else."""

    members: dict[Sequence, None]
    is_alone: bool


class Suspects:
    """Keeps the suspects in cohorts, of which the first is on trial and the others are held until it is cleared."""

    def __init__(self) -> None:
        self._cohorts: list[Cohort] = []

    @property
    def alone(self) -> Sequence | None:
        """The sequence that has to run alone now, if there is one."""
        return next(iter(self._cohorts[0].members)) if self._cohorts and self._cohorts[0].is_alone else None

    def holds(self, sequence: Sequence) -> bool:
        """Tells whether the sequence has to wait for the trial of others."""
        return sequence.is_suspect and sequence not in self._cohorts[0].members

    def may_run(self, waiting: Iterable[Sequence]) -> Iterator[Sequence]:
        """Yields those that wait for no trial of others."""
        alone = self.alone
        return (each for each in waiting if (each is alone if alone else not self.holds(each)))

    def accuse(self, named: Collection[Sequence]) -> None:
        """Notes a death with these sequences in flight. A death while nothing ran accuses nobody."""
        for sequence in named:
            record = sequence.record
            record.num_solo_deaths = record.num_solo_deaths + 1 if len(named) == 1 else 0
            record.num_deaths_guessing += sequence.is_verifying
            if record.num_deaths_guessing >= MAX_DEATHS_GUESSING:
                sequence.guesser = None
        suspects = [sequence for sequence in named if sequence.is_suspect]
        others = [sequence for sequence in named if not sequence.is_suspect]
        newcomers = [sequence for sequence in others if not sequence.record.num_pardons] if suspects else others
        for sequence in others:
            sequence.record.num_pardons = max(0, sequence.record.num_pardons - 1)
        if suspects:
            self._narrow(suspects)
        if newcomers:
            self._cohorts.insert(min(len(suspects), 2), Cohort(dict.fromkeys(newcomers), is_alone=False))
        for sequence in (*suspects, *newcomers):
            sequence.record.num_pardons = MAX_PARDONS
            sequence.record.cleared_at = sequence.length_in_flight

    def adopt(self, sequence: Sequence) -> None:
        """Takes a suspect over from another group. One that was narrowed down runs alone, once all others are cleared.
        """
        if sequence.record.is_narrowed:
            self._cohorts.append(Cohort({sequence: None}, is_alone=True))
        elif self._cohorts and not self._has_narrowed(self._cohorts[-1]):
            self._cohorts[-1].members[sequence] = None
        else:
            self._cohorts.append(Cohort({sequence: None}, is_alone=False))

    @property
    def are_on_trial(self) -> bool:
        """Whether suspects that were narrowed down run, or are about to: the group is likely to die again."""
        return any(map(self._has_narrowed, self._cohorts))

    @staticmethod
    def _has_narrowed(cohort: Cohort) -> bool:
        return any(each.record.is_narrowed for each in cohort.members)

    def clear(self, sequence: Sequence) -> None:
        """Acquits a sequence, because it was answered or has ended. Does nothing if it is no suspect."""
        if not sequence.is_suspect:
            return
        sequence.record.clear()
        for cohort in self._cohorts:
            cohort.members.pop(sequence, None)
        self._cohorts = [cohort for cohort in self._cohorts if cohort.members]

    def _narrow(self, suspects: list[Sequence]) -> None:
        """Puts the suspects that ran in this death too in the place of the cohort on trial, in halves."""
        for sequence in [each for each in self._cohorts[0].members if each not in suspects]:
            self.clear(sequence)
        for sequence in suspects:
            sequence.record.is_narrowed = True
        half = (len(suspects) + 1) // 2
        halves = [dict.fromkeys(suspects[:half]), dict.fromkeys(suspects[half:])]
        self._cohorts[:1] = [Cohort(members, is_alone=len(members) == 1) for members in halves if members]
