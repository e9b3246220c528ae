"""The answers of models that generate text, as tensors: whole ones, or those of each token."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from penstock.router.api.http.headers import compute_time, request_headers, time_headers
from penstock.router.api.kserve.inference import IDS, MASK, TEXT, Inference, Inferred, asked_outputs
from penstock.router.api.kserve.settings import Settings, knows, read_settings
from penstock.router.api.kserve.tensors import BYTES, Tensor
from penstock.router.engine.stream import Event, Token
from penstock.router.errors import ValidationError
from penstock.router.generation import request_record
from penstock.router.generation.answer import Answer
from penstock.router.generation.answers import answering, tokens_of
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import REPEAT, Identity, Wish, identify
from penstock.router.generation.service import Service
from penstock.router.generation.shown_tokens import shown_ids
from penstock.router.generation.spec import FieldNames, GenerationSpec
from penstock.router.pooling.numbers import check_number
from penstock.router.scheduling.finish_reason import FinishReason

INPUTS = (TEXT, IDS, MASK)
OUTPUTS = {
    "text_output": BYTES, "output_ids": "INT32", "finish_reason": BYTES, "num_input_tokens": "UINT32",
    "num_output_tokens": "UINT32", "cumulative_logprob": "FP32", "cum_log_probs": "FP32", "output_log_probs": "FP32"}
"""The datatypes of what is told of an answer."""
_BY_TOKEN = ("output_ids", "output_log_probs")
_SWITCHES = {
    "return_output_ids": ("output_ids",), "return_finish_reason": ("finish_reason",),
    "return_num_input_tokens": ("num_input_tokens",), "return_num_output_tokens": ("num_output_tokens",),
    "return_cumulative_logprob": ("cumulative_logprob",), "return_log_probs": ("cum_log_probs", "output_log_probs")}
"""The outputs that a setting asks for."""


@dataclass(frozen=True, slots=True)
class Generating:
    """A request for texts, as it was read. `prompts` has the texts that answers begin with, which may be empty."""

    specs: Sequence[GenerationSpec]
    settings: Settings
    prompts: Sequence[str]
    outputs: Sequence[str]
    is_column: bool
    identity: Identity

    @property
    def per_prompt(self) -> int:
        """How many answers there are to each prompt."""
        return self.specs[0].num_answers


def streams(inference: Inference, default: bool) -> bool:
    """Tells whether a request asks for a part of its answer at a time. Raises ValidationError."""
    fields = inference.settings(INPUTS)
    return read_settings({"stream": fields.get("stream")}, inference.model.service.limits).switch("stream", default)


async def read(inference: Inference, wish: Wish, *, is_stream: bool) -> Generating:
    """Returns what a request asks for; a stream is refused unless it is for one answer. Raises RouterError."""
    service = inference.model.service
    request_record.describe("text_completion", inference.model.name)
    for name in inference.inputs:
        if name not in INPUTS and name != "sampling_parameters" and not knows(name):
            raise ValidationError(
                f"the model has no input `{name:.100}` beside {', '.join(INPUTS)} and settings", param=name[:100])
    prompts = inference.prompts()
    settings = read_settings(inference.settings(INPUTS), service.limits)
    source = TEXT if TEXT in inference.inputs else IDS
    check_number(prompts, service.limits, source)
    specs = [_spec(inference, prompt, settings, source) for prompt in prompts]
    if settings.switch("stream") and not is_stream:
        raise ValidationError("`stream` is for `…/generate_stream`, and for gRPC's ModelStreamInfer")
    usual = ["text_output", *(name for switch, names in _SWITCHES.items() if settings.switch(switch) for name in names)]
    outputs = asked_outputs(inference, usual, [*OUTPUTS])
    number = len(specs) * specs[0].num_answers
    if number > 1 and is_stream:
        raise ValidationError(f"`stream` is for one answer. Asked for: {number}")
    if number > 1 and (of_tokens := [name for name in outputs if name in _BY_TOKEN]):
        raise ValidationError(f"`outputs`: `{of_tokens[0]}` is for one answer, for others may have other numbers of "
                              f"tokens. Asked for: {number}")
    excludes = settings.switch("exclude_input_in_output", is_stream or source == IDS)
    if is_stream and not excludes:
        raise ValidationError("`exclude_input_in_output` must be true where the answer is streamed. Given: false")
    texts = ["" if excludes else _text(prompt, service) for prompt in prompts]
    identity = await identify(service, specs, wish, ("kserve", excludes, list(outputs)), is_stream=is_stream)
    is_column = source == TEXT and len(inference.inputs[source].shape) > 1
    return Generating(specs, settings, texts, outputs, is_column, identity)


def _spec(inference: Inference, prompt: str | tuple[int, ...], settings: Settings, source: str) -> GenerationSpec:
    service, given = inference.model.service, settings.given
    keeps_stop = settings.switch("include_stop_str_in_output")
    names = FieldNames(
        source, given.get("max_new_tokens", "max_tokens"), truncate="truncate_prompt_tokens",
        num_beams=given.get("num_beams", "num_beams"), beam_search=given.get("num_beams", "num_beams"),
        stop=given.get("stop", "stop"))
    return GenerationSpec(
        prompt, settings.parameters, n=settings.n, is_greedy=settings.is_greedy, keep_stop=keeps_stop,
        tells_special=False, add_special_tokens=settings.switch("add_special_tokens", True), has_openai_penalties=True,
        raw_logprobs=True, names=names, adapter=settings.parameters.adapter_id or inference.model.adapter,
        shown_ids=shown_ids(service, settings.parameters, keep_stop=keeps_stop,
                            skip_special_tokens=settings.switch("skip_special_tokens", True)))


def _text(prompt: str | tuple[int, ...], service: Service) -> str:
    return prompt if isinstance(prompt, str) else service.tokenizer.decode(prompt)


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole answers: what was asked for, each answer with its tokens, and the tensors that tell of them all."""

    asked: Generating
    answers: Sequence[Answer]
    tokens: Sequence[Sequence[Token]]
    inferred: Inferred


async def whole(asking: Asking, inference: Inference, wish: Wish) -> Whole:
    """Returns whole answers. Raises RouterError."""
    asked = await read(inference, wish, is_stream=False)
    async with answering(asking, asked.specs, asked.identity, is_stream=False) as answers:
        of_each = await tokens_of(answers)
    each = [answer for answer in answers.each if answer.ending is not None]
    tokens = [of_each[answer.index] for answer in each]
    for answer in each:
        answer.told(reason_of(answer))
    tensors = [_column(name, each, tokens, asked) for name in asked.outputs]
    headers = {**head(asking.service, asked), **compute_time(each), **time_headers(each, asked.per_prompt)}
    return Whole(asked, each, tokens, Inferred(tensors, headers))


def head(service: Service, asked: Generating) -> dict[str, str]:
    """Returns the headers that are known before an answer begins."""
    return {**request_headers(service, *(spec.inputs for spec in asked.specs)), REPEAT: asked.identity.text}


def reason_of(answer: Answer) -> str:
    """Returns vLLM's word for why an answer has ended."""
    assert answer.ending is not None
    return "length" if answer.ending.finish_reason is FinishReason.LENGTH else "stop"


def _column(name: str, answers: Sequence[Answer], tokens: Sequence[Sequence[Token]], asked: Generating) -> Tensor:
    """Returns an output of whole answers: a row for each, as texts came, or for each prompt."""
    values: list[object] = []
    for answer, of_answer in zip(answers, tokens, strict=True):
        assert answer.ending is not None
        text = asked.prompts[answer.index // asked.per_prompt] + answer.ending.text
        values += _told(name, text, of_answer, sum(token.logprob for token in of_answer), answer)
    is_column = asked.is_column or name in _BY_TOKEN
    shape = (len(asked.specs), len(values) // len(asked.specs)) if is_column else (len(values),)
    return Tensor(name, OUTPUTS[name], shape, values)


def _told(name: str, text: str, tokens: Sequence[Token], logprob: float, answer: Answer) -> list[object]:
    """Returns the values of an output of one answer, or of one token of it."""
    match name:
        case "text_output":
            return [text]
        case "output_ids":
            return [token.id for token in tokens]
        case "output_log_probs":
            return [token.logprob for token in tokens]
        case "finish_reason":
            return [reason_of(answer) if answer.ending is not None else "None"]
        case "num_input_tokens":
            return [len(answer.request.input_ids)]
        case "num_output_tokens":
            return [len(tokens)]
    return [logprob]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an answer that is streamed: the tensors of one token."""

    tensors: Sequence[Tensor]
    answer: Answer
    event: Event


async def parts(asking: Asking, asked: Generating) -> AsyncGenerator[Part | None]:
    """Yields None once the request is checked, and then the part of each token. Raises RouterError."""
    num_given, logprob = 0, 0.0
    async with answering(asking, asked.specs, asked.identity, is_stream=True) as answers:
        yield None
        async for answer, event in answers:
            token, ending = event.token, event.ending
            text = token.text if ending is None else ending.text[num_given:]
            num_given += len(token.text)
            logprob += token.logprob
            if ending is not None:
                answer.told(reason_of(answer))
            values = {name: _told(name, text, [token], logprob, answer) for name in asked.outputs}
            yield Part([Tensor(name, OUTPUTS[name], (1, 1) if asked.is_column or name in _BY_TOKEN else (1,), of_name)
                        for name, of_name in values.items()], answer, event)
