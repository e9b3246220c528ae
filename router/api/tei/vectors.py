"""The vectors of texts, of all their tokens, and sparse ones, and how alike texts are."""

import time
from array import array
from collections.abc import Sequence
from typing import Any

from penstock.contract.pooling import Task
from penstock.router.api.http.measures import Measures, Told
from penstock.router.api.tei.bodies import EmbedBody, SimilarityBody, SimilarityParameters, Text, TextsBody
from penstock.router.errors import WrongModel
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.spec import FieldNames
from penstock.router.generation.tasks import check_task
from penstock.router.pooling.numbers import check_number
from penstock.router.pooling.pooled import Pooled
from penstock.router.pooling.pooling import pooled
from penstock.router.pooling.scores import SIMILARITIES
from penstock.router.pooling.spec import PoolingSpec


async def embed(asking: Asking, body: EmbedBody) -> Told[list[list[float]]]:
    """Returns the vector of each text. Raises RouterError."""
    found, measures = await _asked(asking, body, Task.EMBED, body.normalize, body.dimensions)
    return Told([each.values.tolist() for each in found], measures)


async def embed_all(asking: Asking, body: TextsBody) -> "Told[list[list[array[float]]]]":
    """Returns the vectors of the tokens of each text, which no pooling has touched. Raises RouterError."""
    found, measures = await _asked(asking, body, Task.EMBED_ALL, normalized=False)
    return Told([each.of_tokens() for each in found], measures)


async def embed_sparse(asking: Asking, body: TextsBody) -> Told[list[list[dict[str, Any]]]]:
    """Returns the numbers of each text's sparse vector, with their indices. Raises RouterError."""
    found, measures = await _asked(asking, body, Task.EMBED_SPARSE, normalized=False)
    return Told([[{"index": index, "value": value} for index, value in zip(each.indices, each.values, strict=True)]
                 for each in found], measures)


async def similarity(asking: Asking, body: SimilarityBody) -> Told[list[float]]:
    """Returns how alike the source sentence and each other one are, as the checkpoint compares vectors. Raises
    RouterError."""
    started_at, service = time.monotonic(), asking.service
    request_record.describe("embeddings", None)
    check_task(service.facts, Task.EMBED, WrongModel)
    check_number(body.inputs.sentences, service.limits, "sentences", num_others=1)
    how = body.parameters or SimilarityParameters()
    specs = [
        PoolingSpec(text, Task.EMBED, how.truncate, how.keeps_end, prompt_name=how.prompt_name, adapter=how.adapter_id,
                    normalized=service.texts.compares_normalized, names=FieldNames(inputs=name))
        for name, texts in (("source_sentence", [body.inputs.source_sentence]), ("sentences", body.inputs.sentences))
        for text in texts]
    found = await pooled(asking, specs)
    compared = SIMILARITIES[service.texts.similarity]
    source, *others = (each.values for each in found)
    return Told([compared(source, other) for other in others], Measures.of(specs, found, started_at))


async def _asked(
    asking: Asking, body: TextsBody, task: Task, normalized: bool, dimensions: int | None = None
) -> tuple[list[Pooled], Measures]:
    started_at, service = time.monotonic(), asking.service
    request_record.describe("embeddings", None)
    check_task(service.facts, task, WrongModel)
    texts: Sequence[Text] = body.inputs
    check_number(texts, service.limits, "inputs")
    specs = [PoolingSpec(text, task, body.truncate, body.keeps_end, prompt_name=body.prompt_name,
                         dimensions=dimensions, normalized=normalized, adapter=body.adapter_id) for text in texts]
    found = await pooled(asking, specs)
    return found, Measures.of(specs, found, started_at)
