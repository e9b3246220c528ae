"""Requests that are refused because they can't be answered by their deadlines."""

from math import ceil, inf

from penstock.router.errors import RouterError, ValidationError
from penstock.router.scheduling.estimate import Estimate
from penstock.router.scheduling.promise import Deadline, Verdict
from penstock.router.scheduling.wait_reasons import WaitReason

MOST_RETRY_SECONDS = 60
_OBSTACLES = {
    WaitReason.ADAPTER: "its adapter is not loaded",
    WaitReason.QUOTA: "it would wait until others of its key end, which hold as much of the KV memory as they may",
    WaitReason.GROUP: "the shards are away",
    WaitReason.MEMORY: "there is no KV memory for it",
}
"""Why nothing is known of it."""


class DeadlineTooShort(ValidationError):
    """The answer would be too late even if nobody else were there."""

    def __init__(self, deadline: Deadline, alone: Estimate, num_tokens: int) -> None:
        super().__init__(
            f"`deadline_ms` is too short: the answer would take about {_seconds(alone.total)} alone, "
            f"{_parts(alone, num_tokens)}. Given: {deadline.milliseconds}", "deadline_too_short")


class DeadlineTooNear(RouterError):
    """The answer would be too late because of the requests that are there, and may be in time later."""

    status = 429
    error_type = "deadline"
    metric = "overloaded"
    code = "deadline_too_near"
    param = "deadline_ms"

    def __init__(self, deadline: Deadline, verdict: Verdict, num_tokens: int) -> None:
        late = verdict.estimate.total - verdict.left
        super().__init__(f"{_reason(verdict, num_tokens)}; `deadline_ms` is {deadline.milliseconds}")
        self.retry_after = max(1, min(MOST_RETRY_SECONDS, ceil(late)))


def refusal(deadline: Deadline, verdict: Verdict, num_tokens: int) -> DeadlineTooShort | DeadlineTooNear:
    """Returns why the deadline of an answer of at most `num_tokens` can't be met."""
    whole = deadline.milliseconds / 1000
    if verdict.alone.total > whole and verdict.left < inf:
        return DeadlineTooShort(deadline, verdict.alone, num_tokens)
    return DeadlineTooNear(deadline, verdict, num_tokens)


def _reason(verdict: Verdict, num_tokens: int) -> str:
    """Returns the sentence that tells the estimate."""
    if verdict.obstacle is not None:
        return f"It is not known how long the answer would take, for {_OBSTACLES[verdict.obstacle]}"
    took = f"The answer would take about {_seconds(verdict.estimate.total)}: {_parts(verdict.estimate, num_tokens)}"
    if verdict.num_before:
        took = took.replace("of waiting", f"of waiting behind {verdict.num_before} requests", 1)
    if verdict.breaks_another and verdict.estimate.total <= verdict.left:
        return f"{took}, and others that were promised to be in time would be late beside it"
    return took


def _parts(estimate: Estimate, num_tokens: int) -> str:
    parts = [f"{_seconds(estimate.prompt)} of prompt", f"{_seconds(estimate.tokens)} of {num_tokens} tokens"]
    if estimate.waiting:
        parts.insert(0, f"{_seconds(estimate.waiting)} of waiting")
    return ", ".join(parts)


def _seconds(seconds: float) -> str:
    """Returns a time as people read it."""
    return f"{1000 * seconds:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"
