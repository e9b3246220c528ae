"""A step that writes a text by a template, as chats are written."""

import asyncio

from penstock.router.chat.renderer import NUM_PROCESSES, Renderers
from penstock.router.errors import TemplateError
from penstock.router.pipeline_settings import StepSettings
from penstock.router.pipelines.errors import StepFailed
from penstock.router.pipelines.step import Values
from penstock.system.arguments import InvalidArgument
from penstock.system.daemon_threads import DaemonThreads


class TemplateStep:
    """Renders a template of the values that it reads, in processes that are bounded as those of chats."""

    def __init__(self, settings: StepSettings, known: frozenset[str]) -> None:
        self._name = settings.name
        self._inputs = settings.inputs
        self._known = known | settings.inputs.keys()
        self._reads: frozenset[str] = frozenset()
        self._renderers = Renderers({settings.name: settings.value})
        self._threads = DaemonThreads(NUM_PROCESSES, f"template {settings.name}")

    async def start(self) -> None:
        """Raises InvalidArgument for a template that can't be read, or reads what no step has made before it."""
        try:
            compiled = await asyncio.get_running_loop().run_in_executor(self._threads, self._renderers.compile)
        except TemplateError as error:
            raise InvalidArgument(f"`template`: {error.reason}") from error
        if error_of := compiled.errors.get(self._name):
            raise InvalidArgument(f"`template`: {error_of}")
        self._reads = compiled.variables[self._name]
        if unknown := sorted(self._reads - self._known):
            raise InvalidArgument(f"`template` reads `{unknown[0]}`, which no step before makes; there are "
                                  f"{', '.join(sorted(self._known))}")

    async def made_of(self, values: Values) -> str:
        """Raises StepFailed where the template does not come to its end."""
        named = {name: values[self._inputs.get(name, name)] for name in self._reads}
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._renderers.render, self._name, named)
        except TemplateError as error:
            raise StepFailed(error.reason) from error

    async def close(self) -> None:
        """Ends the threads and processes."""
        self._threads.close()
        self._renderers.close()
