"""Between TEI's messages and what the router knows: a request becomes the body that HTTP reads, answers become
messages."""

from typing import Any

from penstock.protos import tei_pb2 as pb
from penstock.router.api.http.measures import Measures
from penstock.router.api.tei.bodies import EmbedBody, PredictBody, RerankBody, TextsBody
from penstock.router.errors import ValidationError

_DIRECTIONS: dict[int, str] = {pb.TRUNCATION_DIRECTION_RIGHT: "Right", pb.TRUNCATION_DIRECTION_LEFT: "Left"}
_KINDS: dict[str, pb.ModelType] = {
    "embedding": pb.MODEL_TYPE_EMBEDDING, "classifier": pb.MODEL_TYPE_CLASSIFIER, "reranker": pb.MODEL_TYPE_RERANKER}


def _cut(message: Any) -> dict[str, Any]:
    """Returns the fields that say what becomes of a text of too many tokens."""
    direction = _DIRECTIONS.get(message.truncation_direction)
    if direction is None:
        raise ValidationError("`truncation_direction` must be 0, which is right, or 1, which is left. "
                              f"Given: {message.truncation_direction}")
    return {"truncate": message.truncate, "truncation_direction": direction}


def given(message: Any, *names: str) -> dict[str, Any]:
    """Returns those of the optional fields that are set."""
    return {name: getattr(message, name) for name in names if message.HasField(name)}


def decode_embed(message: pb.EmbedRequest) -> EmbedBody:
    return EmbedBody.model_validate({
        "inputs": message.inputs, **_cut(message), **given(message, "normalize", "prompt_name", "dimensions")})


def decode_texts(message: pb.EmbedSparseRequest | pb.EmbedAllRequest) -> TextsBody:
    return TextsBody.model_validate({"inputs": message.inputs, **_cut(message), **given(message, "prompt_name")})


def decode_predict(message: pb.PredictRequest | pb.PredictPairRequest) -> PredictBody:
    """Raises ValidationError for a message without a text, or with more than two."""
    is_pair = isinstance(message, pb.PredictPairRequest)
    if is_pair and not 1 <= len(message.inputs) <= 2:
        raise ValidationError(f"`inputs` must have a single or two elements. Given: {len(message.inputs)}")
    return PredictBody.model_validate({
        "inputs": [*message.inputs] if is_pair else message.inputs, "raw_scores": message.raw_scores, **_cut(message)})


def decode_rerank(message: pb.RerankRequest) -> RerankBody:
    return RerankBody.model_validate({
        "query": message.query, "texts": [*message.texts], "raw_scores": message.raw_scores,
        "return_text": message.return_text, **_cut(message)})


def decode_rerank_stream(message: pb.RerankStreamRequest, is_raw: bool) -> RerankBody:
    return RerankBody.model_validate({
        "query": message.query, "texts": [message.text], "raw_scores": is_raw, **_cut(message)})


def encode_measures(measures: Measures) -> pb.Metadata:
    return pb.Metadata(
        compute_chars=measures.characters, compute_tokens=measures.tokens, total_time_ns=_nanoseconds(measures.total),
        tokenization_time_ns=_nanoseconds(measures.tokenization), queue_time_ns=_nanoseconds(measures.queue),
        inference_time_ns=_nanoseconds(measures.inference))


def _nanoseconds(seconds: float) -> int:
    return max(0, int(seconds * 1_000_000_000))


def encode_info(facts: dict[str, Any]) -> pb.InfoResponse:
    """Returns the fields of `/info` that TEI's message has."""
    fields = {field.name: facts[field.name] for field in pb.InfoResponse.DESCRIPTOR.fields}
    [kind] = facts["model_type"]
    return pb.InfoResponse(**fields | {"model_type": _KINDS[kind]})
