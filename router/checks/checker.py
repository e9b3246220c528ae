"""Asks the processes that check answers."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.router.metrics.checks import CheckMetrics
from penstock.system.arguments import InvalidArgument
from penstock.system.json_objects import as_line
from penstock.system.line_process import LineProcesses, LostError, UselessError

if TYPE_CHECKING:
    from penstock.router.checks.config import ChecksFile

log = logging.getLogger(__name__)

_PROCESS = "penstock.router.checks.process"


@dataclass(frozen=True, slots=True)
class Finding:
    """Says which check an answer has failed, and why; one that `is_broken` could not be run."""

    check: str
    sentence: str
    is_broken: bool = False


class Checker:
    """Looks at answers, several at a time. An answer that can't be checked does not pass."""

    def __init__(self, file: "ChecksFile", folder: Path, metrics: CheckMetrics) -> None:
        """Raises InvalidArgument."""
        self.retries = file.retries
        self.metrics = metrics
        metrics.knows(check.name for check in file.checks)
        self._seconds = file.seconds
        self._processes = LineProcesses(
            _PROCESS, {"checks": file.told(folder), "memory": file.memory}, "the checks")

    @classmethod
    async def opened(cls, file: Path, metrics: CheckMetrics) -> Self:
        """Reads a file of checks, and tries them. Raises InvalidArgument."""
        from penstock.router.checks.config import ChecksFile  # which few servers need

        checker = cls(ChecksFile.read(file), file.parent, metrics)
        await checker.start()
        return checker

    async def start(self) -> None:
        """Tries the checks. Raises InvalidArgument."""
        try:
            await self._processes.start()
        except (UselessError, LostError) as error:
            raise InvalidArgument(f"`output_checks`: {error}") from error

    async def finding(self, text: str, facts: dict[str, Any]) -> Finding | None:
        """Returns the first finding about an answer; None if it passes. `facts` are those of its request, for functions
        to know."""
        question = as_line({"text": text, "facts": facts})
        try:
            reply = await self._processes.ask(question, self._seconds)
        except LostError as error:
            log.error("an answer could not be checked: %s", error)
            reply = {"check": "", "finding": str(error), "is_broken": True}
        if not reply:
            self.metrics.passed()
            return None
        found = Finding(reply["check"], reply["finding"], reply.get("is_broken", False))
        self.metrics.found(found.check, found.is_broken)
        return found

    async def close(self) -> None:
        """Ends the processes."""
        await self._processes.close()
