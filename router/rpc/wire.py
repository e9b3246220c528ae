"""Between messages and what the router knows: a request becomes the body that HTTP reads, answers become messages."""

from collections.abc import Sequence
from typing import Any

import orjson
import pydantic

from penstock.contract.row_result import TopLogprobs
from penstock.protos import penstock_pb2 as pb
from penstock.router.api.tgi.bodies import GenerateBody
from penstock.router.engine.stream import Event, Guesses, Token
from penstock.router.errors import ValidationError
from penstock.router.generation.answer import Answer
from penstock.router.generation.identity import Names, Wish, checked_key
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.shapes import explain
from penstock.router.text.tokenizer import Tokenizer

_NAMES = Names("resume_after", "answer", "idempotency_key", "output_ids")
_REASONS = {
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.EOS_TOKEN: pb.FINISH_REASON_EOS_TOKEN,
    FinishReason.STOP_SEQUENCE: pb.FINISH_REASON_STOP_SEQUENCE,
}

_EARLY_STOPPING: dict[int, bool | str] = {
    pb.EARLY_STOPPING_FALSE: False, pb.EARLY_STOPPING_TRUE: True, pb.EARLY_STOPPING_NEVER: "never"}


def decode_request(message: pb.GenerateRequest) -> dict[str, Any]:
    """Returns the message as the content of a body. Raises ValidationError."""
    content: dict[str, Any] = {"inputs": message.inputs}
    if message.HasField("parameters"):
        content["parameters"] = {field.name: _decode(value) for field, value in message.parameters.ListFields()}
        if message.parameters.HasField("early_stopping"):
            content["parameters"]["early_stopping"] = _EARLY_STOPPING.get(
                message.parameters.early_stopping, message.parameters.early_stopping)
    return content


def to_body(content: dict[str, Any]) -> GenerateBody:
    """Returns a body of this content. ValidationError for what a message can say and a body can't, such as NaN."""
    try:
        return GenerateBody.model_validate(content)
    except pydantic.ValidationError as error:
        raise ValidationError(explain(error.errors(include_url=False)[0], content)) from error


def decode_wish(message: pb.GenerateRequest) -> Wish:
    """Returns the wish of a message; an empty text is no wish."""
    return Wish(message.resume_after or None, message.answer or None,
                checked_key(message.idempotency_key or None, _NAMES.key),
                ",".join(map(str, message.output_ids)) or None, takes_ids=True, names=_NAMES)


def _decode(value: Any) -> Any:
    """Returns the value of a field that is set, as JSON has it."""
    if isinstance(value, pb.Grammar):
        return _decode_grammar(value)
    if isinstance(value, str | int | float):
        return value
    return dict(value) if hasattr(value, "items") else list(value)


def _decode_grammar(message: pb.Grammar) -> dict[str, Any]:
    grammar: dict[str, Any] = {"type": message.type}
    match message.WhichOneof("value"):
        case "text":
            grammar["value"] = message.text
        case "json":
            try:
                grammar["value"] = orjson.loads(message.json)
            except orjson.JSONDecodeError as error:
                raise ValidationError(f"grammar is not valid: `json` can't be read: {error}") from error
    return grammar


def encode_answer(
    tokenizer: Tokenizer, answer: Answer, tokens: Sequence[Token], prompt: str, details: pb.Details | None
) -> pb.GenerateResponse:
    """Returns the message of a whole answer, whose text follows `prompt`; adds its tokens to its details."""
    assert answer.ending is not None
    if details is not None:
        details.tokens.extend(map(_encode_token, tokens))
        if answer.request.sampling.top_n:
            details.top_tokens.extend(
                pb.TopTokens(tokens=_encode_top(tokenizer, token.top_logprobs)) for token in tokens)
    return pb.GenerateResponse(generated_text=prompt + answer.ending.text, details=details)


def encode_details(answer: Answer) -> pb.Details:
    """Returns the details of an answer that has ended, without its tokens."""
    assert answer.ending is not None
    guesses = answer.guesses or Guesses()
    return pb.Details(
        finish_reason=_REASONS[answer.ending.finish_reason], generated_tokens=answer.ending.num_tokens,
        seed=answer.seed, input_length=len(answer.request.input_ids), prefix_hit_tokens=answer.hit_tokens,
        drafted_tokens=guesses.drafted, accepted_tokens=guesses.accepted, score=answer.ending.score)


def encode_prefill(tokenizer: Tokenizer, answer: Answer) -> list[pb.PromptToken]:
    """Returns the prompt's tokens, the first without a logprob; an empty list unless logprobs were computed."""
    if not answer.request.wants_prompt_logprobs:
        return []
    logprobs = [None, *answer.prompt_logprobs.logprobs]
    return [pb.PromptToken(id=token_id, text=tokenizer.text_of(token_id), logprob=logprob)
            for token_id, logprob in zip(answer.request.input_ids, logprobs, strict=True)]


def encode_event(
    tokenizer: Tokenizer, index: int, answer: Answer, event: Event, prompt: str, has_details: bool
) -> pb.GenerateEvent:
    """Returns the message of a stream's token; the last has the text, which follows `prompt`, and the details if asked
    for."""
    message = pb.GenerateEvent(index=index, token=_encode_token(event.token))
    if event.token.top_logprobs:
        message.top_tokens.extend(_encode_top(tokenizer, event.token.top_logprobs))
    if event.ending is not None:
        message.generated_text = prompt + event.ending.text
        if has_details:
            message.details.CopyFrom(encode_details(answer))
    return message


def add_tokens(response: pb.TokenizeResponse, tokens: bytes) -> None:
    """Adds a JSON list of tokens to the message."""
    response.tokens.extend(pb.TextToken(**token) for token in orjson.loads(tokens))


def encode_info(facts: dict[str, Any]) -> pb.InfoResponse:
    """Returns the fields of `/info`, without those that only TGI's clients need."""
    return pb.InfoResponse(**{field.name: facts[field.name] for field in pb.InfoResponse.DESCRIPTOR.fields})


def _encode_token(token: Token) -> pb.Token:
    return pb.Token(id=token.id, text=token.text, logprob=token.logprob, special=token.is_special)


def _encode_top(tokenizer: Tokenizer, top: TopLogprobs) -> list[pb.Token]:
    return [
        pb.Token(id=token_id, text=tokenizer.text_of(token_id), logprob=logprob, special=tokenizer.is_special(token_id))
        for token_id, logprob in top]
