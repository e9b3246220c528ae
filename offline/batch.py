"""Asks for the answers to many prompts at once."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TypeVar

from penstock.offline.asking import Asked, Question
from penstock.offline.model import Model
from penstock.offline.outputs import LoRARequest, PromptScore, RequestOutput
from penstock.offline.progress import shown
from penstock.offline.prompts import Prompt
from penstock.offline.sampling_params import SamplingParams
from penstock.offline.window import ask_each
from penstock.router.generation.service import Service

T = TypeVar("T")


def answer(
    model: Model, prompts: Sequence[Prompt], sampling_params: SamplingParams | Sequence[SamplingParams] | None,
    lora_request: LoRARequest | Sequence[LoRARequest | None] | None, priority: int | Sequence[int] | None,
    use_tqdm: bool | Callable[..., object],
) -> list[RequestOutput]:
    """Returns the answers to prompts, in their order."""
    number = len(prompts)
    params = each_of("sampling_params", SamplingParams() if sampling_params is None else sampling_params, number)
    adapters = each_of("lora_request", lora_request, number)
    priorities = each_of("priority", 0 if priority is None else priority, number)
    questions = [Question(model.next_id(), prompt, own, model.next_seed(), adapter, rank)
                 for prompt, own, adapter, rank in zip(prompts, params, adapters, priorities, strict=True)]
    return ask(model, questions, use_tqdm)


def ask(model: Model, questions: Sequence[Question], use_tqdm: bool | Callable[..., object]) -> list[RequestOutput]:
    """Returns the outputs of questions, in their order."""
    service = model.service
    with shown(use_tqdm, len(questions), "Prompts") as tell:
        return model.loop.run(_answer_all(model, service, questions, tell))


def each_of(name: str, given: T | Sequence[T], number: int) -> Sequence[T]:
    """Returns a value for each prompt. Raises ValueError for a list of another length."""
    if not isinstance(given, Sequence):
        return [given] * number
    if len(given) != number:
        raise ValueError(f"`{name}` must be one, or one for each of {number} prompts. Given: {len(given)}")
    return given


async def _answer_all(
    model: Model, service: Service, questions: Sequence[Question], tell: Callable[[RequestOutput], None]
) -> list[RequestOutput]:
    """Returns the outputs of all questions in their order. The first error ends all of them."""
    outputs: dict[str, RequestOutput] = {}

    async def in_order() -> AsyncIterator[Question]:
        for question in sorted(questions, key=lambda each: each.priority):
            yield question

    async def ask(question: Question) -> None:
        output = outputs[question.request_id] = await Asked(question).run(model.session, service)
        tell(output)

    await ask_each(in_order(), service.engine.num_slots, ask)
    return [outputs[question.request_id] for question in questions]


def scores(outputs: Iterable[RequestOutput]) -> list[PromptScore]:
    """Returns the prompts' own logprobs, of outputs that have them."""
    return [PromptScore(output.prompt, output.prompt_token_ids, [
                None if position is None else position[token_id].logprob
                for token_id, position in zip(output.prompt_token_ids, output.prompt_logprobs or (), strict=True)])
            for output in outputs]
