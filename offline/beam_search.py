"""Searches for the likeliest answers to prompts."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from penstock.offline.asking import Question
from penstock.offline.batch import ask, each_of
from penstock.offline.model import Model
from penstock.offline.outputs import BeamSearchOutput, BeamSearchSequence, CompletionOutput, LoRARequest, RequestOutput
from penstock.offline.prompts import Prompt
from penstock.offline.sampling_params import BeamSearchParams, SamplingParams
from penstock.router.text.tokenizer import Tokenizer

_SHARED = {each.name for each in fields(BeamSearchParams)} & {each.name for each in fields(SamplingParams)}


def search(
    model: Model, prompts: Sequence[Prompt], params: BeamSearchParams,
    lora_request: LoRARequest | Sequence[LoRARequest | None] | None, use_tqdm: bool | Callable[..., object],
) -> list[BeamSearchOutput]:
    """Returns the answers that are found for each prompt. Raises TypeError and ValueError as `generate` does."""
    if not isinstance(params, BeamSearchParams):
        raise TypeError(f"params must be BeamSearchParams. Given: {type(params).__name__}")
    for name, value in (("beam_width", params.beam_width), ("num_return_sequences", params.num_return_sequences)):
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"`{name}` must be a number from 1 on. Given: {value!r}")
    given: dict[str, Any] = {name: getattr(params, name) for name in _SHARED - {"temperature"}}
    number = params.beam_width if params.num_return_sequences is None else params.num_return_sequences
    shared = SamplingParams(temperature=0, n=number, **given)
    adapters = each_of("lora_request", lora_request, len(prompts))
    questions = [Question(model.next_id(), prompt, shared, lora_request=adapter, beams=params)
                 for prompt, adapter in zip(prompts, adapters, strict=True)]
    return [BeamSearchOutput([_sequence(output, answer, params, model.service.tokenizer) for answer in output.outputs])
            for output in ask(model, questions, use_tqdm)]


def _sequence(
    output: RequestOutput, answer: CompletionOutput, params: BeamSearchParams, tokenizer: Tokenizer
) -> BeamSearchSequence:
    prompt = tokenizer.decode(output.prompt_token_ids) if output.prompt is None else output.prompt
    total = answer.cumulative_logprob or 0.0
    score = answer.score
    if score is None:  # of a single beam, with which nothing was compared
        score = total / len(answer.token_ids) ** params.length_penalty
    return BeamSearchSequence([*output.prompt_token_ids, *answer.token_ids], prompt + answer.text, total, score,
                              answer.finish_reason, answer.stop_reason)
