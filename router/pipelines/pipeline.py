"""A pipeline: its steps, those before the answer and those behind it."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.router.errors import RouterError
from penstock.router.generation import request_record
from penstock.router.generation.piped import After
from penstock.router.generation.request_record import DoneStep
from penstock.router.pipeline_settings import PipelineSettings, StepSettings
from penstock.router.pipelines.errors import StepFailed, named
from penstock.router.pipelines.model_step import prompt_in
from penstock.router.pipelines.step import Step, Values


class Pipeline:
    """Runs steps in turn, notes each in the record of the request, and has their errors name them."""

    def __init__(self, settings: PipelineSettings, steps: Sequence[Step]) -> None:
        self.settings = settings
        self._steps = steps

    @property
    def answering(self) -> StepSettings:
        """The step whose model answers."""
        return self.settings.steps[self.settings.answering]

    async def begun(self, given: Values) -> tuple[dict[str, Any], Any]:
        """Runs the steps before the answer. Returns all values, and the prompt of the model that is to answer. Raises
        RouterError."""
        values = dict(given)
        for place in range(self.settings.answering):
            await self._run(place, values)
        try:
            return values, prompt_in(self.answering, values)
        except RouterError as error:
            raise named(error, self._name_of(self.answering)) from error

    def after(self, values: Values) -> After | None:
        """Returns the steps behind the answer, which know the values before it; None if there are none."""
        place = self.settings.answering + 1
        return Following(self, values, place) if place < len(self._steps) else None

    async def finished(self, values: dict[str, Any], text: str, done: Mapping[int, DoneStep] | None = None) -> str:
        """Runs the steps behind the answer, and returns the text that the last makes. Raises RouterError."""
        values[self.answering.name] = text
        for place in range(self.settings.answering + 1, len(self._steps)):
            await self._run(place, values, None if done is None else done[place])
        last = self.settings.steps[-1]
        made = values[last.name]
        if not isinstance(made, str):
            raise named(StepFailed("the last step must make a text"), self._name_of(last))
        return made

    async def _run(self, place: int, values: dict[str, Any], done: DoneStep | None = None) -> None:
        """Runs a step, whose value is among `values` then. It is noted anew, unless it has been `done` before."""
        settings = self.settings.steps[place]
        done = done or self.noted(place)
        try:
            values[settings.name] = await self._steps[place].made_of(values)
        except RouterError as error:
            done.error = error
            raise named(error, self._name_of(settings)) from error
        finally:
            done.ended_at = time.monotonic()

    def noted(self, place: int) -> DoneStep:
        """Notes that a step begins."""
        settings = self.settings.steps[place]
        done = DoneStep(self.settings.name, settings.name, settings.kind)
        request_record.current().steps.append(done)
        return done

    def _name_of(self, step: StepSettings) -> str:
        return f"step `{step.name}` of {self.settings.name}"

    async def close(self) -> None:
        """Ends what the steps have begun."""
        for step in self._steps:
            await step.close()


class Following:
    """The steps of a pipeline behind an answer. Those that take it piece by piece are noted once."""

    def __init__(self, pipeline: Pipeline, values: Values, first: int) -> None:
        self._pipeline = pipeline
        self._values = values
        self._places = range(first, len(pipeline.settings.steps))
        self._done: dict[int, DoneStep] | None = None

    @property
    def streams(self) -> bool:
        return all(self._pipeline.settings.steps[place].stream for place in self._places)

    async def made_of(self, text: str) -> str:
        if self.streams and self._done is None:
            self._done = {place: self._pipeline.noted(place) for place in self._places}
        return await self._pipeline.finished(dict(self._values), text, self._done)


class InTurn:
    """The steps behind the answers of two pipelines, of which the second has asked the first."""

    def __init__(self, first: After, second: After) -> None:
        self._both = first, second

    @property
    def streams(self) -> bool:
        return all(each.streams for each in self._both)

    async def made_of(self, text: str) -> str:
        for each in self._both:
            text = await each.made_of(text)
        return text
