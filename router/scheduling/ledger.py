"""Divides the time of steps among the requests that they computed."""

from collections.abc import Callable

from penstock.contract.row import Row
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.step_totals import StepTotals


class Ledger:
    """Charges requests for the steps of a group. Each row of a step has a part of the step's time by the number of its
    tokens. What was computed in vain, for requests that had ended when the step came back, is borne by the rows of the
    next step that has some, so that all requests together are charged for all of the time. So is the energy of steps,
    where it is measured. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now = 0.0
        self._per_token = 0.0
        self._totals = StepTotals()
        self.unpaid = 0.0
        """The seconds of steps that nobody has been charged for yet."""
        self._energy_per_token: float | None = None
        self.unpaid_energy = 0.0
        """The microjoules of steps that nobody has been charged for yet."""

    def open(self, result: StepResult, num_tokens: int, num_rows: int) -> None:
        """Begins to charge for a step, which has so many rows, and in them so many tokens."""
        self._now, before = self._clock(), self._totals
        self._totals = StepTotals(before.num_steps + 1, before.num_rows + num_rows, before.prompt_seconds)
        seconds = result.draft_time + result.forward_time + result.sample_time + self.unpaid
        self._per_token, self.unpaid = seconds / num_tokens, seconds
        self._energy_per_token = None
        if result.energy_uj is not None:
            self.unpaid_energy += result.energy_uj
            self._energy_per_token = self.unpaid_energy / num_tokens

    def charge(self, sequence: Sequence, row: Row) -> None:
        """Charges a sequence, which has not ended, for its row and its forks' rows."""
        usage, start, count, now = sequence.usage, row.start, row.num_inputs, self._now
        usage.kv_token_seconds += (start + count) * (now - sequence.charged_at)
        if not row.is_decode:
            self._charge_prompt(sequence, row)
        sequence.charged_at = now
        if sequence.forks:
            count += sum(fork.row.num_inputs for fork in sequence.forks)
        part = count * self._per_token
        usage.step_seconds += part
        self.unpaid -= part
        if self._energy_per_token is None:
            usage.energy_uj = None
            return
        self.unpaid_energy -= count * self._energy_per_token
        if usage.energy_uj is not None:
            usage.energy_uj += count * self._energy_per_token

    def _charge_prompt(self, sequence: Sequence, row: Row) -> None:
        """Notes the tokens of a row amid a prefill, and for how long they were waited for."""
        usage, start, count = sequence.usage, row.start, row.num_inputs
        replayed = min(count, max(0, usage.reached - start))
        usage.replayed_tokens += replayed
        usage.prompt_tokens += max(0, min(start + count, sequence.prompt_length) - start - replayed)
        seconds = self._now - sequence.charged_at
        usage.replay_seconds += seconds * replayed / count
        usage.prompt_seconds += seconds * (count - replayed) / count
        self._totals.prompt_seconds += count * self._per_token
        sequence.computed_at = self._totals

    def leave(self, sequence: Sequence) -> None:
        """Notes beside how many others a sequence was computed, which ends."""
        since, now, usage = sequence.computed_at, self._totals, sequence.usage
        if since is None:
            return
        num_steps = now.num_steps - since.num_steps
        usage.num_steps += num_steps
        usage.num_beside += max(0, now.num_rows - since.num_rows - num_steps)
        usage.prompts_beside += now.prompt_seconds - since.prompt_seconds
        sequence.computed_at = None
