"""Attributes of a request's span, by OpenTelemetry's semantic conventions for generative AI."""

from collections.abc import Mapping
from typing import Any

import orjson
from opentelemetry.util.types import AttributeValue

from penstock.router.engine.stream import Stream
from penstock.router.generation.request_record import RequestRecord
from penstock.router.generation.spec import GenerationSpec
from penstock.router.journal.redaction import Redaction

DETAILS = "gen_ai.client.inference.operation.details"
"""The event with texts."""
PROVIDER = "penstock"
_INT64 = 2**63


def asked(record: RequestRecord, model_id: str) -> Mapping[str, AttributeValue | None]:
    """Returns the attributes of what was asked of the first prompt; None stands for what was not."""
    generation = record.generations[-1 if record.steps else 0]  # the first are those of a pipeline's steps
    spec = generation.specs[0]
    common = {
        "gen_ai.operation.name": record.operation,
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": record.model or model_id,
        "gen_ai.response.model": model_id,
        "gen_ai.response.id": record.answer_id,
        "penstock.adapter": spec.adapter,
    }
    if not isinstance(spec, GenerationSpec):
        return {**common, "gen_ai.embeddings.dimension.count": getattr(spec, "dimensions", None)}
    parameters = spec.parameters
    seed = parameters.seed
    return {
        **common,
        "gen_ai.request.stream": generation.is_stream,
        "gen_ai.request.choice.count": spec.num_answers if spec.num_answers > 1 else None,
        "gen_ai.request.max_tokens": parameters.max_new_tokens,
        "gen_ai.request.temperature": 0.0 if spec.is_greedy else parameters.temperature,
        "gen_ai.request.top_k": parameters.top_k,
        "gen_ai.request.top_p": parameters.top_p,
        "gen_ai.request.frequency_penalty": parameters.frequency_penalty,
        "gen_ai.request.presence_penalty": parameters.presence_penalty,
        "gen_ai.request.stop_sequences": list(parameters.stop) or None,
        # An attribute is an int64, a seed a uint64.
        "gen_ai.request.seed": seed if seed is None or seed < _INT64 else str(seed),
    }


def answered(record: RequestRecord) -> Mapping[str, AttributeValue | None]:
    """Returns the attributes of what came of a request: its tokens, and how each answer ended."""
    streams = record.streams
    if not streams:
        return {}
    firsts = record.first_streams
    endings = [stream.ending for stream in streams if stream.ending is not None]
    guesses = [stream.guesses for stream in streams if stream.guesses is not None]
    came_at = [stream.first_token_at for stream in streams if stream.first_token_at is not None]
    return {
        "gen_ai.usage.input_tokens": sum(len(stream.request.input_ids) for stream in firsts),
        "gen_ai.usage.cache_read.input_tokens": sum(stream.hit_tokens for stream in firsts),
        "penstock.drafted_tokens": sum(each.drafted for each in guesses) if guesses else None,
        "penstock.accepted_tokens": sum(each.accepted for each in guesses) if guesses else None,
        "gen_ai.usage.output_tokens": sum(ending.num_tokens for ending in endings),
        "gen_ai.response.finish_reasons": [each.finish_reason for each in streams if each.finish_reason] or None,
        "gen_ai.response.time_to_first_chunk": min(came_at) - record.generations[0].received_at if came_at else None,
    }


def details(record: RequestRecord, redaction: Redaction) -> Mapping[str, AttributeValue | None]:
    """Returns the attributes of the event that has the texts of prompts, as the model got them, and of answers."""
    prompts = [spec.inputs for generation in record.generations for spec in generation.specs
               if isinstance(spec, GenerationSpec) and isinstance(spec.inputs, str)]
    answers = [(stream.text, stream.finish_reason) for stream in record.streams if isinstance(stream, Stream)]
    return {
        "gen_ai.operation.name": record.operation,
        "gen_ai.input.messages": _messages(
            [{"role": "user", "parts": _parts(redaction.of(prompt))} for prompt in prompts]),
        "gen_ai.output.messages": _messages(
            [{"role": "assistant", "parts": _parts(redaction.of(text)), "finish_reason": reason}
             for text, reason in answers])}


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "content": text}]


def _messages(messages: list[dict[str, Any]]) -> str | None:
    return orjson.dumps(messages).decode() if messages else None
