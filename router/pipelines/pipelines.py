"""All pipelines of a server, by their names."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

from penstock.router.api.whole_answers import whole_answer
from penstock.router.errors import Overloaded
from penstock.router.generation import request_record
from penstock.router.generation.piped import After, Piped
from penstock.router.generation.services import Services
from penstock.router.pipeline_settings import GIVEN, MESSAGES, PROMPT, PipelineSettings, StepSettings
from penstock.router.pipelines.check_step import CheckStep
from penstock.router.pipelines.model_step import GenerateStep, PoolingStep, TokenizeStep
from penstock.router.pipelines.pipeline import InTurn, Pipeline
from penstock.router.pipelines.python_step import PythonStep
from penstock.router.pipelines.step import Step
from penstock.router.pipelines.template_step import TemplateStep
from penstock.system.arguments import InvalidArgument


@dataclass(frozen=True, slots=True)
class Begun:
    """A request to a pipeline whose answer is to be made now: by which model, of which prompt and parameters."""

    model: str
    prompt: Any
    parameters: Mapping[str, Any]
    after: After | None


class Pipelines:
    """Begins requests to pipelines. The steps before an answer run for so many requests at once as have permits."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._all: dict[str, Pipeline] = {}
        self._num_running = 0

    @classmethod
    async def opened(cls, settings: Sequence[PipelineSettings], services: Services) -> Self:
        """Makes them, and tries each of their steps. Raises InvalidArgument."""
        pipelines = cls(services)
        try:
            for each in settings:
                await pipelines._open(each)
        except BaseException:
            await pipelines.close()
            raise
        return pipelines

    def __contains__(self, name: object) -> bool:
        return name in self._all

    def __bool__(self) -> bool:
        return bool(self._all)

    async def begun(self, name: str, prompt: str, messages: object) -> tuple[Begun, Piped]:
        """Runs the steps before the answer of a pipeline. Raises RouterError."""
        if self._num_running >= self._services.first.limits.max_concurrent_requests:
            raise Overloaded
        self._num_running += 1
        try:
            with _steps_noted():
                begun = await self._begun(name, prompt, messages)
        finally:
            self._num_running -= 1
        return begun, Piped(name, begun.model, begun.after)

    async def close(self) -> None:
        """Ends what the steps have begun."""
        for pipeline in self._all.values():
            await pipeline.close()

    async def _begun(self, name: str, prompt: Any, messages: object) -> Begun:
        pipeline = self._all[name]
        values, made = await pipeline.begun({PROMPT: prompt, MESSAGES: messages})
        step, after = pipeline.answering, pipeline.after(values)
        model = self._services.resolve(step.value, request_record.current().key)
        assert model is not None
        if model not in self._all:
            return Begun(model, made, step.parameters, after)
        inner = await self._begun(model, made, [{"role": "user", "content": made}])
        both = InTurn(inner.after, after) if inner.after and after else inner.after or after
        return replace(inner, parameters={**inner.parameters, **step.parameters}, after=both)

    async def _generated(self, model: str, prompt: Any, parameters: Mapping[str, Any]) -> str:
        """Returns the text that a model, or a pipeline, makes. Raises RouterError."""
        resolved = self._services.resolve(model, request_record.current().key)
        after: After | None = None
        if resolved in self._all:
            begun = await self._begun(resolved, prompt, [{"role": "user", "content": prompt}])
            resolved, prompt, after = begun.model, begun.prompt, begun.after
            parameters = {**begun.parameters, **parameters}
        body = {**parameters, "model": resolved, "prompt": prompt}
        whole = await whole_answer(self._services, "/v1/completions", body)
        text: str = whole.content["choices"][0]["text"]
        return text if after is None else await after.made_of(text)

    async def _open(self, pipeline: PipelineSettings) -> None:
        known, steps = [*GIVEN], list[Step]()
        self._all[pipeline.name] = Pipeline(pipeline, steps)
        for settings in pipeline.steps:
            try:
                steps.append(step := self._step(settings, frozenset(known)))
                await step.start()
            except InvalidArgument as error:
                raise InvalidArgument(f"model {pipeline.name}: step `{settings.name}`: {error.message}") from error
            known.append(settings.name)

    def _step(self, settings: StepSettings, known: frozenset[str]) -> Step:
        match settings.kind:
            case "template":
                return TemplateStep(settings, known)
            case "tokenize":
                return TokenizeStep(settings, self._services)
            case "python":
                return PythonStep(settings)
            case "check":
                return CheckStep(settings, self._services.first.metrics.checks)
        if settings.generates:
            return GenerateStep(settings, self._generated)
        return PoolingStep(settings, self._services)


@contextmanager
def _steps_noted() -> Iterator[None]:
    """Keeps the words of the request's record, in whose place the models of steps put their own."""
    record = request_record.current()
    operation, model, answer_id = record.operation, record.model, record.answer_id
    try:
        yield
    finally:
        record.operation, record.model, record.answer_id = operation, model, answer_id
