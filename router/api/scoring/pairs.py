"""The scores of pairs of texts, for bodies that ask for them."""

from collections.abc import Sequence, Sized

from penstock.contract.pooling import Task
from penstock.router.api.openai.pooling_specs import spec_of
from penstock.router.api.scoring.bodies import ScoredBody
from penstock.router.errors import EmptyText
from penstock.router.generation.asking import Asking
from penstock.router.generation.other_fields import REFUSED_IN_POOLING, refuse_unsupported
from penstock.router.generation.service import Service
from penstock.router.generation.spec import FieldNames
from penstock.router.pooling.numbers import check_number
from penstock.router.pooling.reranking import Pair, Scored, check_pairs, score_pairs


def check(service: Service, body: ScoredBody, texts: Sized, field: str) -> None:
    """Checks a body as far as that takes no text to be read. Raises ValidationError."""
    refuse_unsupported(body.model_extra, REFUSED_IN_POOLING)
    check_number(texts, service.limits, field)
    check_pairs(service.facts, body.instruction)


async def scored(asking: Asking, body: ScoredBody, pairs: Sequence[Pair], fields: Pair) -> Scored:
    """Returns the scores of pairs, whose texts are those of two `fields`. Raises RouterError."""
    for field, texts in zip(fields, zip(*pairs, strict=True), strict=True):
        if "" in texts:
            raise EmptyText(field)
    names = FieldNames(inputs=fields[1], truncate="truncate_prompt_tokens")
    like = spec_of(body, asking.service, "", Task.CLASSIFY, names, instruction=body.instruction)
    return await score_pairs(asking, pairs, like, is_raw=body.use_activation is False)
