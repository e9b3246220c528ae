"""A step that asks a function of the operator's, in processes of its own."""

from typing import Any

from penstock.router.pipeline_settings import StepSettings
from penstock.router.pipelines.errors import StepFailed, StepRefused
from penstock.router.pipelines.step import Values
from penstock.system.arguments import InvalidArgument
from penstock.system.json_objects import as_line
from penstock.system.line_process import LineProcesses, LostError, UselessError

_PROCESS = "penstock.router.pipelines.process"


class PythonStep:
    """Calls a function, whose time and memory are bounded. One that ends its process costs the request that it was
    called for, and no other."""

    def __init__(self, settings: StepSettings) -> None:
        self._inputs = settings.inputs
        self._seconds = settings.seconds
        self._processes = LineProcesses(
            _PROCESS, {"file": settings.value, "function": settings.function, "inputs": [*settings.inputs],
                       "seconds": settings.seconds, "memory": settings.memory}, f"`{settings.function}`")

    async def start(self) -> None:
        """Raises InvalidArgument for a function that does not take the step's inputs."""
        try:
            await self._processes.start()
        except (UselessError, LostError) as error:
            raise InvalidArgument(f"`python`: {error}") from error

    async def made_of(self, values: Values) -> Any:
        """Raises StepRefused for a ValueError of the function, and StepFailed for all else."""
        question = as_line({name: values[value] for name, value in self._inputs.items()})
        try:
            reply = await self._processes.ask(question, self._seconds)
        except LostError as error:
            raise StepFailed(str(error)) from error
        if "refusal" in reply:
            raise StepRefused(reply["refusal"])
        if "error" in reply:
            raise StepFailed(reply["error"])
        return reply["value"]

    async def close(self) -> None:
        """Ends the processes."""
        await self._processes.close()
