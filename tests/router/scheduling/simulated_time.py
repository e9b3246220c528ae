"""The time of a simulation: that of its steps, and that for which its sequences wait."""

import random
from collections.abc import Iterable
from dataclasses import replace
from math import isclose

from penstock.contract.step_result import StepResult
from penstock.router.scheduling.ledger import Ledger
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.usage import Usage

CHECKED = 50
"""The number of steps from one check of charges to the next."""


class SimulatedTime:
    """A clock that goes on by chance, and a record of what requests must be told of the time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.now = 0.0
        self.step_seconds = 0.0
        self.energy_uj = 0
        self._waited: dict[Sequence, float] = {}
        """For how long each sequence has waited that has not ended."""
        self._usages: set[Usage] = set()

    def __call__(self) -> float:
        return self.now

    def pass_by(self) -> None:
        """Some time goes by. Those that have ended since it last did were told all that they waited."""
        seconds = self._random.expovariate(10.0)
        self.now += seconds
        ended = [sequence for sequence in self._waited if sequence.status is Status.FINISHED]
        for sequence in ended:
            check_waits(sequence, self._waited.pop(sequence))
        for sequence in self._waited:
            if sequence.status is Status.WAITING:
                self._waited[sequence] += seconds

    def came(self, sequences: Iterable[Sequence]) -> None:
        for sequence in sequences:
            if sequence not in self._waited:
                self._waited[sequence] = 0.0
                self._usages.add(sequence.usage)

    def timed(self, result: StepResult, ledger: Ledger) -> StepResult:
        """Says how long a step took, and its energy. Now and then those before it must have been charged for."""
        if result.step_id % CHECKED == 0:
            self._check_charges(ledger)
        times = [self._random.randrange(10**8) for _ in range(3)]
        self.step_seconds += sum(times) / 1e9
        energy = self._random.randrange(10**6)
        self.energy_uj += energy
        return replace(result, forward_ns=times[0], sample_ns=times[1], draft_ns=times[2], energy_uj=energy)

    def check(self, ledger: Ledger) -> None:
        """Requests are charged for all of the time of all steps, and for all of their energy."""
        self.pass_by()
        assert not self._waited
        self._check_charges(ledger)

    def _check_charges(self, ledger: Ledger) -> None:
        charged = sum(usage.step_seconds for usage in self._usages) + ledger.unpaid
        assert isclose(charged, self.step_seconds, abs_tol=1e-6), f"charged for {charged} of {self.step_seconds} s"
        energy = sum(usage.energy_uj or 0.0 for usage in self._usages) + ledger.unpaid_energy
        assert isclose(energy, self.energy_uj, abs_tol=0.1), f"charged for {energy} of {self.energy_uj} microjoules"
        assert ledger.unpaid < 1.0, f"nobody is charged for {ledger.unpaid} s"


def check_waits(sequence: Sequence, seconds: float) -> None:
    """A sequence that has ended was told for how long it waited, and no token of its prompt counts twice. The beams of
    a search are told together."""
    usage = sequence.usage
    assert usage.prompt_tokens <= sequence.prompt_length, "tokens of a prompt are told to be computed twice"
    if not sequence.is_beam:
        told = sum(usage.waits.values())
        assert isclose(told, seconds, abs_tol=1e-6), f"a sequence waited {seconds} s, and is told of {told}"
