"""A step that lets a text pass, or not, by the operator's checks."""

from pathlib import Path

from penstock.router.checks.checker import Checker
from penstock.router.metrics.checks import CheckMetrics
from penstock.router.pipeline_settings import LONE, StepSettings
from penstock.router.pipelines.errors import StepFailed, StepRefused
from penstock.router.pipelines.step import Values
from penstock.system.arguments import InvalidArgument


class CheckStep:
    """Makes the text that it has looked at."""

    def __init__(self, settings: StepSettings, metrics: CheckMetrics) -> None:
        """Takes checks, or the file that has them. Raises InvalidArgument."""
        from penstock.router.checks.config import ChecksFile  # which few servers need

        self._input = settings.inputs[LONE]
        try:
            folder = Path(settings.folder)
            if isinstance(settings.value, str):
                folder, file = Path(settings.value).parent, ChecksFile.read(Path(settings.value))
            else:
                file = ChecksFile.of({"checks": settings.value, "seconds": min(settings.seconds, 60.0),
                                      "memory": settings.memory}, "here")
            if file.retries:
                raise InvalidArgument("`retries` must be 0 in a pipeline")
            self._checker = Checker(file, folder, metrics)
        except InvalidArgument as error:
            raise _of_step(error) from error

    async def start(self) -> None:
        """Raises InvalidArgument for a check that can't be used."""
        try:
            await self._checker.start()
        except InvalidArgument as error:
            raise _of_step(error) from error

    async def made_of(self, values: Values) -> str:
        """Raises StepRefused for a text that has not passed."""
        text = values[self._input]
        if not isinstance(text, str):
            raise StepFailed(f"it checks texts, and `{self._input}` is none")
        finding = await self._checker.finding(text, {"value": self._input})
        if finding is None:
            return text
        if finding.is_broken:
            raise StepFailed(f"the check `{finding.check}` could not be run: {finding.sentence}")
        raise StepRefused(f"`{self._input}` has not passed the check `{finding.check}`: {finding.sentence}")

    async def close(self) -> None:
        """Ends the processes."""
        await self._checker.close()


def _of_step(error: InvalidArgument) -> InvalidArgument:
    return InvalidArgument(f"`check`: {error.message.removeprefix('`output_checks`: ')}")
