"""The answers to TEI's messages, by the functions that answer its HTTP routes."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

from penstock.protos import tei_pb2 as pb
from penstock.router.api.http.measures import Measures
from penstock.router.api.tei import texts, vectors
from penstock.router.api.tei.bodies import DecodeBody, TokenizeBody
from penstock.router.api.tei.scores import predict, rerank
from penstock.router.errors import ValidationError
from penstock.router.generation.asking import Asking
from penstock.router.rpc import tei_wire
from penstock.router.rpc.service import MAX_SPLIT


class Replied(NamedTuple):
    """The message of an answer, and its costs where they are told."""

    message: Any
    measures: Measures | None = None


Answer = Callable[[Asking, Any], Awaitable[Replied]]
"""A function that answers a message. Those that are computed are counted by the `Asking`."""


async def _embed(asking: Asking, request: pb.EmbedRequest) -> Replied:
    with asking:
        told = await vectors.embed(asking, tei_wire.decode_embed(request))
        return Replied(pb.EmbedResponse(embeddings=told.content[0], metadata=tei_wire.encode_measures(told.measures)),
                       told.measures)


async def _embed_sparse(asking: Asking, request: pb.EmbedSparseRequest) -> Replied:
    with asking:
        told = await vectors.embed_sparse(asking, tei_wire.decode_texts(request))
        values = [pb.SparseValue(**value) for value in told.content[0]]
        return Replied(
            pb.EmbedSparseResponse(sparse_embeddings=values, metadata=tei_wire.encode_measures(told.measures)),
            told.measures)


async def _embed_all(asking: Asking, request: pb.EmbedAllRequest) -> Replied:
    with asking:
        told = await vectors.embed_all(asking, tei_wire.decode_texts(request))
        tokens = [pb.TokenEmbedding(embeddings=vector) for vector in told.content[0]]
        return Replied(pb.EmbedAllResponse(token_embeddings=tokens, metadata=tei_wire.encode_measures(told.measures)),
                       told.measures)


async def _predict(asking: Asking, request: pb.PredictRequest | pb.PredictPairRequest) -> Replied:
    with asking:
        told = await predict(asking, tei_wire.decode_predict(request))
        predictions = [pb.Prediction(**each) for each in told.content[0]]
        return Replied(pb.PredictResponse(predictions=predictions, metadata=tei_wire.encode_measures(told.measures)),
                       told.measures)


async def _rerank(asking: Asking, request: pb.RerankRequest) -> Replied:
    with asking:
        told = await rerank(asking, tei_wire.decode_rerank(request))
        ranks = [pb.Rank(**each) for each in told.content]
        return Replied(pb.RerankResponse(ranks=ranks, metadata=tei_wire.encode_measures(told.measures)), told.measures)


async def _tokenize(asking: Asking, request: pb.EncodeRequest) -> Replied:
    if len(request.inputs) > MAX_SPLIT:
        raise ValidationError(f"`inputs` must have <= {MAX_SPLIT} characters, for the answer is one message; "
                              f"HTTP's /tokenize takes longer texts. Given: {len(request.inputs)}")
    body = TokenizeBody.model_validate(
        {"inputs": request.inputs, **tei_wire.given(request, "prompt_name")})
    response = pb.EncodeResponse()
    async with asking.permit():
        [text] = texts.check_texts(asking.service, body)
        async with aclosing(texts.tokenize(asking.service, text, request.add_special_tokens)) as parts:
            async for part in parts:
                response.tokens.extend(pb.SimpleToken(**token) for token in part)
    return Replied(response)


async def _decode(asking: Asking, request: pb.DecodeRequest) -> Replied:
    body = DecodeBody.model_validate(
        {"ids": [[*request.ids]], "skip_special_tokens": request.skip_special_tokens})
    async with asking.permit():
        [text] = await texts.decode(asking.service, body)
    return Replied(pb.DecodeResponse(text=text))


ANSWERS: dict[str, dict[str, Answer]] = {
    "Embed": {"Embed": _embed, "EmbedSparse": _embed_sparse, "EmbedAll": _embed_all},
    "Predict": {"Predict": _predict, "PredictPair": _predict},
    "Rerank": {"Rerank": _rerank},
    "Tokenize": {"Tokenize": _tokenize, "Decode": _decode},
}
"""By the names of services and of their calls. Each has a call beside it that takes a stream of such messages."""
