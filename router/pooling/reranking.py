"""The scores of pairs of texts: by a reranker, or, of an embedder, how alike their vectors are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.router.errors import ValidationError
from penstock.router.generation.asking import Asking
from penstock.router.generation.tasks import check_reranks, reranks
from penstock.router.pooling.pooled import Pooled
from penstock.router.pooling.pooling import pooled
from penstock.router.pooling.questions import question_of
from penstock.router.pooling.scores import SIMILARITIES, activated
from penstock.router.pooling.spec import PoolingSpec

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of pairs in their order, and the results that they were made of: one of each pair, or else one of
    each text."""

    scores: list[float]
    made_of: list[Pooled]
    is_of_pairs: bool = True


def check_pairs(facts: Facts, instruction: str | None) -> None:
    """Checks that the model gives pairs of texts a score, and is told an `instruction` only if it takes one. Raises
    ValidationError."""
    if instruction is not None and question_of(facts) is None:
        raise ValidationError("`instruction` is not supported: the model is told none", "unsupported_parameter")
    if not _compares(facts):
        check_reranks(facts)


def _compares(facts: Facts) -> bool:
    """Tells whether the scores of pairs are made of vectors."""
    return Task.EMBED in facts.tasks and not reranks(facts)


async def score_pairs(
    asking: Asking, pairs: Sequence[Pair], like: PoolingSpec, *, is_raw: bool = False
) -> Scored:
    """Returns the scores of pairs, each asked for as by `like` but for its texts. That of a reranker is activated
    unless it `is_raw`. Raises RouterError."""
    facts = asking.service.facts
    check_pairs(facts, like.instruction)
    if _compares(facts):
        return await _compared(asking, pairs, like)
    found = await pooled(asking, [replace(like, inputs=pair) for pair in pairs])
    return Scored([(each.values if is_raw else activated(each.values, facts.activation))[0] for each in found], found)


async def _compared(asking: Asking, pairs: Sequence[Pair], like: PoolingSpec) -> Scored:
    """A text that several pairs have is computed once."""
    rules = asking.service.texts
    texts = [*dict.fromkeys(text for pair in pairs for text in pair)]
    like = replace(like, task=Task.EMBED, normalized=rules.compares_normalized)
    found = await pooled(asking, [replace(like, inputs=text) for text in texts])
    vectors = {text: each.values for text, each in zip(texts, found, strict=True)}
    similarity = SIMILARITIES[rules.similarity]
    return Scored([similarity(vectors[first], vectors[second]) for first, second in pairs], found,
                  is_of_pairs=False)
