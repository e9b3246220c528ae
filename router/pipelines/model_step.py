"""Steps that ask a model: for a text, for the tokens of one, for vectors, ranks or classes of some."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from penstock.contract.pooling import Task
from penstock.router.errors import ValidationError
from penstock.router.generation.asking import Asking
from penstock.router.generation.services import Services
from penstock.router.pipeline_settings import LONE, StepSettings
from penstock.router.pipelines.errors import StepFailed
from penstock.router.pipelines.step import PlainStep, Values
from penstock.router.pooling.pooling import pooled
from penstock.router.pooling.reranking import score_pairs
from penstock.router.pooling.scores import activated, ranked
from penstock.router.pooling.spec import PoolingSpec
from penstock.router.text.encoding import TokenizerError

Generate = Callable[[str, Any, Mapping[str, Any]], Awaitable[str]]
"""Returns the text that a model, or a pipeline, makes of a prompt, by these parameters."""


class GenerateStep(PlainStep):
    """Makes a text of a prompt, or of its tokens."""

    def __init__(self, settings: StepSettings, generate: Generate) -> None:
        self._settings = settings
        self._generate = generate

    async def made_of(self, values: Values) -> str:
        """Raises RouterError."""
        settings = self._settings
        return await self._generate(settings.value, prompt_in(settings, values), settings.parameters)


def prompt_in(settings: StepSettings, values: Values) -> Any:
    """Returns the prompt of a model that generates: a text, or token ids. Raises StepFailed."""
    prompt = values[settings.inputs[LONE]]
    if not isinstance(prompt, str) and not (isinstance(prompt, list) and prompt and all(
            type(each) is int for each in prompt)):
        raise StepFailed(f"`{settings.inputs[LONE]}` must be a text, or token ids")
    return prompt


class TokenizeStep(PlainStep):
    """Makes token ids of a text, by the tokenizer of a model."""

    def __init__(self, settings: StepSettings, services: Services) -> None:
        self._settings = settings
        self._services = services

    async def made_of(self, values: Values) -> list[int]:
        """Raises RouterError."""
        [text] = _texts(values[self._settings.inputs[LONE]], self._settings.inputs[LONE])
        async with self._services.using(self._settings.value) as service:
            try:
                return [*await service.tokenizer.encode(text)]
            except TokenizerError as error:
                raise ValidationError(f"tokenizer error {error}") from error


class PoolingStep(PlainStep):
    """Makes vectors, ranks or classes of texts."""

    def __init__(self, settings: StepSettings, services: Services) -> None:
        self._settings = settings
        self._services = services

    async def made_of(self, values: Values) -> Any:
        """Raises RouterError."""
        inputs = {name: values[value] for name, value in self._settings.inputs.items()}
        async with self._services.using(self._settings.value) as service:
            with Asking(service) as asking:
                if self._settings.task == "rerank":
                    [query] = _texts(inputs["query"], "query")
                    return await _reranked(asking, query, _texts(inputs["texts"], "texts"))
                texts = _texts(inputs[LONE], self._settings.inputs[LONE])
                made = await (_vectors if self._settings.task == "embed" else _classes)(asking, texts)
        return made if isinstance(inputs[LONE], list) else made[0]


async def _vectors(asking: Asking, texts: Sequence[str]) -> list[Any]:
    found = await pooled(asking, [PoolingSpec(text, Task.EMBED, truncates=True) for text in texts])
    return [each.values.tolist() for each in found]


async def _classes(asking: Asking, texts: Sequence[str]) -> list[Any]:
    """Returns for each text its classes with their scores, the best first."""
    found = await pooled(asking, [PoolingSpec(text, Task.CLASSIFY, truncates=True) for text in texts])
    facts = asking.service.facts
    scores = [activated(each.values, facts.activation) for each in found]
    return [[{"label": facts.labels[place], "score": each[place]} for place in ranked(each)] for each in scores]


async def _reranked(asking: Asking, query: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the texts with their places and scores, the best first."""
    like = PoolingSpec("", Task.CLASSIFY, truncates=True)
    scores = (await score_pairs(asking, [(query, text) for text in texts], like)).scores
    return [{"index": place, "score": scores[place], "text": texts[place]} for place in ranked(scores)]


def _texts(given: object, name: str) -> list[str]:
    texts: list[Any] = given if isinstance(given, list) else [given]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise StepFailed(f"`{name}` must be a text, or texts")
    return texts
