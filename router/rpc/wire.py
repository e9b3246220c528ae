"""Protobuf to what is asked and from what is answered. No pb2 type of the public API goes further than this folder."""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError as SchemaError

from protos import penstock_pb2
from router.api.answer import Answer
from router.api.schemas import Parameters
from router.api.service import Service
from router.errors import ValidationError
from router.grammar.forms import parse_grammar
from router.grammar.spec import GrammarSpec
from router.scheduling.plan import FinishReason
from router.stream import Event, Token
from router.text.tokenizer import TextToken
from router.validation import Asked

_REASONS = {
    FinishReason.LENGTH: penstock_pb2.FINISH_REASON_LENGTH,
    FinishReason.EOS_TOKEN: penstock_pb2.FINISH_REASON_EOS_TOKEN,
    FinishReason.STOP_SEQUENCE: penstock_pb2.FINISH_REASON_STOP_SEQUENCE}


def decode_request(message: penstock_pb2.GenerateRequest) -> Asked:
    """ValidationError names the field that is wrong."""
    fields = {descriptor.name: value for descriptor, value in message.parameters.ListFields()}
    for name in ("stop", "stop_token_ids"):
        fields[name] = list(fields.get(name, ()))
    fields["logit_bias"] = {str(token_id): bias for token_id, bias in fields.get("logit_bias", {}).items()}
    grammar = _grammar(fields.pop("grammar")) if "grammar" in fields else None
    try:
        parameters = Parameters.model_validate(fields)
    except SchemaError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValidationError(f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}") from error
    if message.n > 1 and (parameters.best_of or 1) > 1:
        raise ValidationError(f"`n` and `best_of` cannot both be > 1. Given: {message.n} and {parameters.best_of}")
    inputs = tuple(message.token_ids.ids) if message.WhichOneof("prompt") == "token_ids" else message.text
    return Asked(inputs, parameters, n=message.n or 1, grammar=grammar)


def _grammar(message: penstock_pb2.Grammar) -> GrammarSpec:
    match message.WhichOneof("kind"):
        case "json_schema":
            return parse_grammar({"type": "json", "value": message.json_schema})
        case "choice":
            return parse_grammar({"type": "choice", "value": list(message.choice.texts)})
        case "regex" | "lark" as kind:
            return parse_grammar({"type": kind, "value": getattr(message, kind)})
        case _:
            raise ValidationError("grammar is not valid: it must be of a kind")


def encode_answers(answers: Iterable[tuple[Answer, list[Token]]]) -> penstock_pb2.GenerateResponse:
    return penstock_pb2.GenerateResponse(answers=[
        penstock_pb2.Answer(tokens=map(_token, tokens), ending=_ending(answer)) for answer, tokens in answers])


def encode_event(answer: Answer, event: Event) -> penstock_pb2.GenerateEvent:
    return penstock_pb2.GenerateEvent(
        index=answer.index, token=_token(event.token), ending=None if event.ending is None else _ending(answer))


def encode_text(tokens: Iterable[TextToken]) -> penstock_pb2.TokenizeResponse:
    return penstock_pb2.TokenizeResponse(tokens=[
        penstock_pb2.TextToken(id=token.id, text=token.text, start=token.start, stop=token.stop) for token in tokens])


def encode_info(service: Service) -> penstock_pb2.InfoResponse:
    facts, limits, info = service.engines.choose().facts, service.limits, service.info
    return penstock_pb2.InfoResponse(
        model_id=info.model_id, model_sha=info.model_sha or "", version=info.version, dtype=facts.dtype,
        numerics=facts.numerics, vocab_size=facts.vocab_size, max_input_tokens=limits.max_input_tokens,
        max_total_tokens=limits.max_total_tokens, max_best_of=limits.max_best_of,
        max_concurrent_requests=limits.max_concurrent_requests)


def _token(token: Token) -> penstock_pb2.Token:
    return penstock_pb2.Token(
        id=token.id, text=token.text, logprob=token.logprob, special=token.is_special,
        top=[penstock_pb2.TopToken(id=token_id, logprob=logprob) for token_id, logprob in token.top])


def _ending(answer: Answer) -> penstock_pb2.Ending:
    ending = answer.ending
    assert ending is not None
    fields: dict[str, Any] = {} if answer.seed is None else {"seed": answer.seed}
    return penstock_pb2.Ending(
        finish_reason=_REASONS[ending.finish_reason], text=ending.text, generated_tokens=ending.num_tokens,
        prompt_tokens=len(answer.request.input_ids), prefix_hit_tokens=answer.hit_tokens, **fields)
