"""The gate at which answers are held back until they have passed the operator's checks."""

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.router.checks.checker import Checker, Finding
from penstock.router.checks.errors import OutputRefused
from penstock.router.engine.stream import Event
from penstock.router.generation import request_record
from penstock.router.generation.answer import Answer
from penstock.router.generation.gate import Gate
from penstock.router.generation.seeds import derived_seed

_FIRST = 1 << 32
"""Is added to the numbers of retries, so that their seeds are none of other candidates or prompts."""


class OutputGate(Gate):
    """Holds the events of each answer until it is whole and has passed. One that fails is made anew by `again`, by a
    seed of its own, or else its request fails."""

    def __init__(self, checker: Checker, again: Callable[[Answer, int], Awaitable[None]]) -> None:
        super().__init__()
        self._checker = checker
        self._again = again
        self._num_retries: dict[int, int] = {}

    async def take(self, answer: Answer, event: Event) -> None:
        """Takes an event. Raises OutputRefused."""
        events = self._whole(answer, event)
        if event.ending is None:
            return
        finding = await self._checker.finding(event.ending.text, _facts(answer, event))
        if finding is None:
            self._passed.extend((answer, each) for each in events)
            return
        number = self._num_retries[answer.index] = self._num_retries.get(answer.index, 0) + 1
        request_record.current().findings.append((answer.index, finding.check, finding.sentence))
        if finding.is_broken or number > self._checker.retries or not _may_differ(answer):
            raise _refusal(finding)
        self._checker.metrics.retried()
        await self._again(answer, retry_seed(answer.first_seed, number))


def retry_seed(seed: int, number: int) -> int:
    """Returns the seed of a retry, by that of the first try: who repeats the request gets the same answer."""
    return derived_seed(seed, _FIRST + number)


def _may_differ(answer: Answer) -> bool:
    """Tells whether another seed may make another answer."""
    return answer.request.sampling.do_sample and answer.request.beams is None


def _facts(answer: Answer, event: Event) -> dict[str, Any]:
    record = request_record.current()
    inputs = answer.spec.inputs
    return {"prompt": inputs if isinstance(inputs, str) else None, "adapter": answer.spec.adapter,
            "model": record.model, "key": record.key, "route": record.route,
            "finish_reason": event.ending.finish_reason.value if event.ending else None}


def _refusal(finding: Finding) -> OutputRefused:
    if finding.is_broken:
        return OutputRefused(finding.check, f"it could not be run: {finding.sentence}")
    return OutputRefused(finding.check, finding.sentence)
