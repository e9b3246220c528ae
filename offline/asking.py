"""Asks a session for the answers to one prompt."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from penstock.launcher.adapters import find_all
from penstock.offline.collector import Collector
from penstock.offline.event_loop import in_daemon_thread
from penstock.offline.failures import as_error
from penstock.offline.outputs import LoRARequest, RequestOutput
from penstock.offline.prompts import Prompt
from penstock.offline.sampling_params import BeamSearchParams, SamplingParams
from penstock.offline.session import Session
from penstock.offline.specs import spec_of
from penstock.router.adapters.source import AdapterSource
from penstock.router.errors import Unhealthy
from penstock.router.generation.answers import answering
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import Wish, identify
from penstock.router.generation.service import Service
from penstock.system.arguments import InvalidArgument
from penstock.system.setting import AskedAdapter

AWAY = "the shards are away for longer than `max_shard_downtime`, and make no progress in loading"


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt and how it is to be answered; `seed` is for parameters without one."""

    request_id: str
    prompt: Prompt
    params: SamplingParams
    seed: int | None = None
    lora_request: LoRARequest | None = None
    priority: int = 0
    """Those with a smaller one come first."""
    beams: BeamSearchParams | None = None
    """The search that is asked for, if it is one; `params` have the fields that it shares with other questions."""

    def __post_init__(self) -> None:
        if not isinstance(self.params, SamplingParams):
            raise TypeError(f"sampling_params must be SamplingParams. Given: {type(self.params).__name__}")
        object.__setattr__(self, "params", copy(self.params))  # a program may change its own while they are read
        if not isinstance(self.lora_request, LoRARequest | None):
            raise TypeError(f"`lora_request` must be a LoRARequest. Given: {type(self.lora_request).__name__}")


@dataclass(slots=True)
class Asked:
    """A question that is being answered. The collector has the answers so far, for whoever is in the session's loop."""

    question: Question
    collector: Collector = field(init=False)

    async def run(
        self, session: Session, service: Service, on_tokens: Callable[["Asked"], Any] = lambda asked: None
    ) -> RequestOutput:
        """Returns the output once all answers have ended, and calls `on_tokens` whenever there are more tokens. Raises
        ValueError for a question that can't be answered, and RuntimeError if there is no answer."""
        question = self.question
        self.collector = Collector(question.request_id, question.prompt, question.params, service.tokenizer,
                                   question.lora_request)
        try:
            adapter = await adapter_named(session, service, question.lora_request)
            spec = spec_of(question.prompt, question.params, service, question.seed, adapter,
                           question.priority, question.beams)
            with Asking(service) as asking:
                identity = await identify(service, [spec], Wish(), ("offline",), is_stream=False)
                async with answering(asking, [spec], identity, is_stream=False) as answers:
                    self.collector.begin(answers.each)
                    async for answer, event in answers:
                        self.collector.take(answer, event)
                        on_tokens(self)
                self.collector.end()
        except Unhealthy as error:
            raise as_error(session.failure or Unhealthy(AWAY)) from error
        except Exception as error:
            raise as_error(session.failure or error) from error
        return self.collector.output()


async def adapter_named(session: Session, service: Service, asked: LoRARequest | None) -> str | None:
    """Returns the name of an adapter, which is added to those that are known if it is not; None for none. Raises
    ValueError."""
    if asked is None:
        return None
    if not service.allows_runtime_adapters:
        raise ValueError("`lora_request` needs an LLM that was made with `enable_lora=True`")
    known = next((source for source in service.adapters if source.name == asked.lora_name), None)
    if known is not None:
        if known.origin != asked.lora_path:
            raise ValueError(f"there is an adapter {asked.lora_name!r} already, of {known.origin}")
        return known.name
    try:
        sources: tuple[AdapterSource, ...] = await in_daemon_thread(
            find_all, [AskedAdapter(asked.lora_name, asked.lora_path)], service.info.model_id, session.download_dir,
            False)
    except InvalidArgument as error:
        raise ValueError(error.message.replace("`lora_adapters`", "`lora_request`")) from error
    [source] = sources
    if source.name not in service.adapters:  # another request may have come first
        await service.adapters.add(source)
    return source.name
