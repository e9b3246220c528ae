"""The models of a server of several, by the names that requests have for them."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from penstock.router.errors import ModelNotFound, Unhealthy, ValidationError, WrongTask
from penstock.router.foreign.model import ForeignModel
from penstock.router.foreign.models import NONE, ForeignModels
from penstock.router.foreign_settings import Fallback
from penstock.router.generation.request_record import waiting
from penstock.router.generation.service import Service
from penstock.router.generation.services import Listed, Services
from penstock.router.metrics import exposition
from penstock.router.metrics.metrics import Metrics
from penstock.router.metrics.shadows import ShadowMetrics
from penstock.router.metrics.sources import SourceMetrics
from penstock.router.models.aliases import Aliases, Targets, fault_of
from penstock.router.models.errors import ModelsFixed
from penstock.router.models.model import Model, State
from penstock.router.pipeline_settings import ROUTES, PipelineSettings, circle_of

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often idle models are looked for."""


class Models(Services):
    """The first model, which is always loaded, and others, which are loaded when requests ask for them, in turn.

    The requests of those `elsewhere` are answered by other servers, so that there is nothing to load; by `fallbacks`
    they take the place of models here. Those of `pipelines` are answered by steps, for which their models are loaded.
    `max_memory` bounds the bytes of all that are loaded, `max_load_wait` the seconds that a request waits. What becomes
    of `aliases` while the server runs is kept in `file`, for the router that may have to take the place of this one.
    Clients unload models and change aliases only where they `may_change` them.
    """

    def __init__(
        self, first: Service, first_bytes: int, others: Sequence[Model], aliases: Aliases, *,
        max_memory: int | None, max_load_wait: float, file: Path | None = None, may_change: bool = True,
        elsewhere: ForeignModels = NONE, fallbacks: Mapping[str, Fallback] | None = None,
        pipelines: Sequence[PipelineSettings] = (),
    ) -> None:
        super().__init__(first)
        self._first_bytes = first_bytes
        self._models = {model.name: model for model in others}
        self._aliases = aliases
        self._elsewhere = elsewhere
        self._fallbacks = fallbacks or {}
        self._pipelines = {pipeline.name: pipeline for pipeline in pipelines}
        self._max_memory = max_memory
        self._max_load_wait = max_load_wait
        self._file = file
        self._may_change = may_change
        self._turn = asyncio.Lock()
        self._shadow_metrics: dict[str, ShadowMetrics] = {}
        self._loads: dict[str, asyncio.Task[None]] = {}
        self._freed = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Service]:
        yield self.first
        yield from (model.service for model in self._models.values() if model.service is not None)

    @property
    def are_several(self) -> bool:
        return True

    @property
    def names(self) -> frozenset[str]:
        """The names of all models."""
        return frozenset({self.first.info.model_id, *self._models, *self._elsewhere, *self._pipelines})

    def named(self, name: str | None) -> Service:
        if name in (None, "tgi") or self.first.serves(name):
            return self.first
        found = next((each for each in self if each.serves(name)), None)
        if found is not None:
            return found
        self.refuse_unloadable(name)
        raise ModelNotFound(str(name))

    def refuse_unloadable(self, name: str | None) -> None:
        if name in self._pipelines:
            raise WrongTask("is a pipeline", [f"POST {path}" for path in ROUTES])
        if (foreign := self.elsewhere(name)) is not None:
            raise foreign.refusal

    def resolve(self, name: str | None, client: str | None) -> str | None:
        return name if name is None else self._aliases.resolve(name, client)

    def elsewhere(self, name: str | None) -> ForeignModel | None:
        return self._elsewhere.get(name)

    @property
    def has_elsewhere(self) -> bool:
        return bool(self._elsewhere)

    def fallback_of(self, name: str | None) -> Fallback | None:
        return self._fallbacks.get(self.first.info.model_id if name in (None, "tgi") else name)

    async def take(self, name: str | None, client: str | None = None) -> Service:
        """Raises ModelNotFound, Unhealthy for a model that can't be loaded in time, and WrongTask for one elsewhere."""
        resolved = self.resolve(name, client)
        model = self._model_of(resolved)
        if model is None:
            return self.named(resolved)
        if not model.is_ready:
            with waiting("load"):
                await self._wait(model)
        return model.take()

    @property
    def has_shadows(self) -> bool:
        return self._aliases.have_shadows

    def shadows_of(self, name: str) -> Targets:
        return self._aliases.shadows_of(name)

    def take_loaded(self, name: str) -> Service | None:
        model = self._model_of(name)
        if model is None:
            return self.first
        return model.take() if model.is_ready else None

    def shadow_metrics(self, name: str) -> ShadowMetrics:
        return self._shadow_metrics.setdefault(name, ShadowMetrics())

    def give_back(self, service: Service) -> None:
        model = self._models.get(service.info.model_id)
        if model is not None and model.service is service:
            model.give_back()
            self._freed.set()

    def listed(self) -> Iterator[Listed]:
        yield Listed(self.first.info.model_id, self.first, [*self.first.adapters], State.READY)
        for model in self._models.values():
            yield Listed(model.name, model.service, [*model.adapters], model.state)
        for foreign in self._elsewhere.values():
            yield Listed(foreign.name, state=foreign.state, source=foreign.source)
        for pipeline in self._pipelines.values():
            yield Listed(pipeline.name, state=self._state_of(pipeline), steps=pipeline.models)
        for alias, targets in self._aliases:
            yield Listed(alias, targets=targets, shadows=self._aliases.shadows_of(alias))

    def exposition(self) -> bytes:
        counted = {model.name: model.metrics for model in self._models.values() if model.metrics is not None}
        every: list[tuple[str, Metrics | SourceMetrics | ShadowMetrics]] = [
            (self.first.info.model_id, self.first.metrics), *counted.items(),
            *((foreign.name, foreign.metrics) for foreign in self._elsewhere.values()), *self._shadow_metrics.items()]
        return exposition.written(exposition.joined(
            series for name, metrics in every for series in exposition.labelled(metrics.told(), name)))

    async def load(self, name: str) -> None:
        if (pipeline := self._pipelines.get(name)) is not None:
            for model in pipeline.models:
                for target in dict(self._aliases).get(model, [model]):
                    await self.load(target)
        elif name != self.first.info.model_id and self.elsewhere(name) is None:
            await asyncio.shield(self._loading(self._known(name)))

    async def unload(self, name: str) -> None:
        if name == self.first.info.model_id:
            raise ValidationError(f"`model`: {name} is the server's first model, which is always loaded")
        self._check_may_change()
        if self.elsewhere(name) is not None or name in self._pipelines:
            by = "steps" if name in self._pipelines else "a server elsewhere"
            raise ValidationError(f"`model`: {name} is answered by {by}, so that nothing is loaded")
        await asyncio.shield(self._start(self._unload(self._known(name))))

    async def point(self, alias: str, targets: Targets, shadows: Targets | None = None) -> None:
        """Loads the models first; those that no alias names any more are unloaded once their requests are answered."""
        self._check_may_change()
        if fault := fault_of(alias, targets, self.names, shadows):
            raise ValidationError(f"`alias`: {alias}: {fault}")
        if circle := circle_of(self._pipelines.values(), {**dict(self._aliases), alias: targets}):
            raise ValidationError(f"`targets`: pipelines must not ask one another in a circle: {circle}")
        if piped := [shadow for shadow in shadows or {} if shadow in self._pipelines]:
            raise ValidationError(f"`shadow`: {piped[0]} is a pipeline, which can't be one")
        for name in (*targets, *(shadows or {})):
            await self.load(name)
        before = {*dict(self._aliases).get(alias, {}), *self._aliases.shadows_of(alias)}
        self._aliases.point(alias, targets, shadows)
        if self._file is not None:  # a router that dies here leaves those from before
            whole = self._file.with_suffix(".new")
            whole.write_bytes(orjson.dumps(self._aliases.to_json()))
            whole.replace(self._file)
        for name in before:
            model = self._models.get(name)
            if model is not None and not model.is_pinned and not self._aliases.stand_for(name):
                self._start(self._unload(model))

    async def run(self) -> None:
        """Loads the models that are pinned, those that the router before this one had loaded, and shadows, which no
        request loads; unloads those that nobody has used for long, until cancelled."""
        for model in self._models.values():
            model.on_loss = self._lose
            model.follow()
            if model.is_pinned or model.has_shards or self._aliases.are_followed_by(model.name):
                self._loading(model)
            else:
                model.forget_shards()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            for model in self._models.values():
                if model.is_pinned:
                    if model.may_be_tried:
                        self._loading(model)
                elif model.is_idle and now > model.used_at + model.keep_alive and not (
                        self._aliases.are_followed_by(model.name)):
                    self._start(self._unload(model))

    async def close(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for model in self._models.values():
            await model.close()
        await self._elsewhere.close()

    async def _wait(self, model: Model) -> None:
        """Waits until a model is loaded, which does not leave before the request has it. Raises Unhealthy."""
        model.num_waiting += 1
        try:
            async with asyncio.timeout(self._max_load_wait):
                while not model.is_ready:
                    model.check()
                    await asyncio.shield(self._loading(model))
        except TimeoutError:
            raise Unhealthy(f"{model.name} was not loaded within {self._max_load_wait:g} s") from None
        finally:
            model.num_waiting -= 1
            self._freed.set()

    def _state_of(self, pipeline: PipelineSettings) -> str:
        """Returns the state of the first of a pipeline's models that is not ready, of all that its steps may come to
        ask."""
        for name in pipeline.models:
            for target in dict(self._aliases).get(name, [name]):
                inner, model = self._pipelines.get(target), self._models.get(target)
                state = State.READY if model is None else model.state
                if inner is not None:
                    state = State(self._state_of(inner))
                if state is not State.READY:
                    return state
        return State.READY

    def _check_may_change(self) -> None:
        if not self._may_change:
            raise ModelsFixed

    def _lose(self, model: Model) -> None:
        self._start(self._replace(model))

    async def _replace(self, model: Model) -> None:
        await self._unload(model)
        if model.is_pinned:
            await self._loading(model)

    def _known(self, name: str) -> Model:
        model = self._models.get(name)
        if model is None:
            raise ModelNotFound(name)
        return model

    def _model_of(self, name: str | None) -> Model | None:
        """Returns the model of this name, or with an adapter of this name; None for the first, and for all that no
        model has."""
        if name is None or self.first.serves(name):
            return None
        return self._models.get(name) or next((model for model in self._models.values() if model.serves(name)), None)

    def _loading(self, model: Model) -> "asyncio.Task[None]":
        """Returns the task that loads a model, begun if it has not been."""
        task = self._loads.get(model.name)
        if task is None:
            task = self._loads[model.name] = self._start(self._load(model))
            task.add_done_callback(lambda _: self._loads.pop(model.name))
        return task

    async def _load(self, model: Model) -> None:
        await model.settled()
        if model.config.groups is not None:  # it takes no memory here, and its groups may be away for long
            await model.load()
            return
        async with self._turn:
            if not model.is_ready:
                await self._make_room(model)
                await model.load()

    async def _unload(self, model: Model) -> None:
        """Unloads a model that is loaded, or is being loaded."""
        if loading := self._loads.get(model.name):
            await asyncio.wait([loading])
        await model.settled()
        if model.is_ready:
            await model.unload()
            self._freed.set()

    async def _make_room(self, model: Model) -> None:
        """Unloads models, the least recently used first, until there is memory for another one."""
        while self._max_memory is not None:
            loaded = [each for each in self._models.values() if each.service is not None]
            if self._first_bytes + sum(each.config.num_bytes for each in [*loaded, model]) <= self._max_memory:
                return
            idle = [each for each in loaded if each.is_idle and not each.is_pinned]
            if idle:
                await min(idle, key=lambda each: each.used_at).unload()
            else:
                self._freed.clear()
                await self._freed.wait()

    def _start(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # it was logged, and those who wait for it are told
