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
        self._totals = StepTotals()
        self._unpaid_tokens = 0
        """The tokens of the step that nobody has been charged for yet."""
        self._per_token = 0.0
        """The seconds of each of its tokens."""
        self._energy = 0.0
        self._energy_per_token: float | None = None
        """The microjoules of each; None if they were not measured. Then `_energy` waits for a step where they are."""

    @property
    def unpaid(self) -> float:
        """The seconds of steps that nobody has been charged for yet."""
        return self._unpaid_tokens * self._per_token

    @property
    def unpaid_energy(self) -> float:
        """The microjoules of steps that nobody has been charged for yet."""
        per_token = self._energy_per_token
        return self._energy if per_token is None else self._unpaid_tokens * per_token

    def open(self, result: StepResult, num_tokens: int, num_rows: int) -> None:
        """Begins to charge for a step, which has so many rows, and in them so many tokens."""
        seconds = result.draft_time + result.forward_time + result.sample_time + self.unpaid
        self._energy, self._energy_per_token = self.unpaid_energy, None
        self._now, before = self._clock(), self._totals
        self._totals = StepTotals(before.num_steps + 1, before.num_rows + num_rows, before.prompt_seconds)
        self._unpaid_tokens, self._per_token = num_tokens, seconds / num_tokens
        if result.energy_uj is not None:
            self._energy_per_token = (self._energy + result.energy_uj) / num_tokens

    def charge(self, sequence: Sequence, row: Row, num_inputs: int) -> None:
        """Charges a sequence, which has not ended, for its row, which has so many inputs, and its forks' rows."""
        usage, now = sequence.usage, self._now  # each token comes by here
        usage.kv_token_seconds += (row.start + num_inputs) * (now - sequence.charged_at)
        if not row.is_decode:
            self._charge_prompt(sequence, row, num_inputs)
        sequence.charged_at = now
        if sequence.forks:
            num_inputs += sum(fork.row.num_inputs for fork in sequence.forks)
        usage.step_seconds += num_inputs * self._per_token
        self._unpaid_tokens -= num_inputs
        if self._energy_per_token is None:
            usage.energy_uj = None
        elif usage.energy_uj is not None:
            usage.energy_uj += num_inputs * self._energy_per_token

    def _charge_prompt(self, sequence: Sequence, row: Row, count: int) -> None:
        """Notes the tokens of a row amid a prefill, and for how long they were waited for."""
        usage, start = sequence.usage, row.start
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
