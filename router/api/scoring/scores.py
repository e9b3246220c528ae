"""vLLM's `POST /score` and `/v1/score`: a score for each pair of texts."""

from aiohttp import web

from penstock.router.api.http.body import json_response, read_body
from penstock.router.api.scoring.bodies import ScoreBody
from penstock.router.api.scoring.envelope import head
from penstock.router.api.scoring.pairs import check, scored
from penstock.router.errors import ValidationError
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.services import service_of
from penstock.router.pooling.reranking import Pair

_SIDES = (("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2"))


async def score(request: web.Request) -> web.StreamResponse:
    """Answers with a score for each pair."""
    body = await read_body(request, ScoreBody)
    request_record.describe("score", body.model)
    with Asking(await service_of(request, body.model)) as asking:
        pairs, fields = _pairs(body)
        check(asking.service, body, pairs, fields[1])
        found = await scored(asking, body, pairs, fields)
        data = [{"index": index, "object": "score", "score": each} for index, each in enumerate(found.scores)]
        return json_response({**head(asking.service, body, "score", found.made_of), "data": data})


def _pairs(body: ScoreBody) -> tuple[list[Pair], Pair]:
    """Returns the pairs, and the names of the fields of their texts. Raises ValidationError."""
    given = [name for pair in _SIDES for name in pair if getattr(body, name) is not None]
    named = next((sides for sides in _SIDES if set(given) == set(sides)), None)
    if named is None:
        rule = "; ".join(f"`{first}` and `{second}`" for first, second in _SIDES)
        raise ValidationError(f"a score is for two fields, and no more: {rule}. "
                              f"Given: {', '.join(dict.fromkeys(given)) or 'none'}", "missing_required_parameter")
    firsts, seconds = (getattr(body, name) for name in named)
    if len(firsts) not in (1, len(seconds)):
        raise ValidationError(f"`{named[0]}` must be one text, or as many as `{named[1]}`. "
                              f"Given: {len(firsts)} and {len(seconds)}")
    return [*zip(firsts * (len(seconds) // len(firsts)), seconds, strict=True)], named
