"""A client's request for what a model makes of one text, in the terms that all APIs share."""

from dataclasses import dataclass

from penstock.contract.pooling import Task
from penstock.router.generation.spec import TGI_NAMES, FieldNames


@dataclass(frozen=True, slots=True)
class PoolingSpec:
    """A client's request for a vector or the scores of one text, by whichever API, before it is checked.

    `inputs` is a text, token ids, or a pair of texts, about which a language model that reranks is told the
    `instruction`, or its own. A text of too many tokens is cut to `max_tokens`, or without them
    to as many as the model takes, if it `truncates`; None leaves that to the server's setting. Its beginning is kept,
    or with `keeps_end` its end. The prompt of the checkpoint that `prompt_name` names comes before it; None stands for
    the one that comes before every text, if there is one. A vector is cut to `dimensions` and scaled to a length of 1
    if it is to be `normalized`. `adapter` is the name of the adapter that is to answer, `priority` and `salt` are as in
    `Parameters`, `names` are for errors.
    """

    inputs: str | tuple[int, ...] | tuple[str, str]
    task: Task
    truncates: bool | None = None
    keeps_end: bool = False
    max_tokens: int | None = None
    prompt_name: str | None = None
    dimensions: int | None = None
    normalized: bool = True
    adds_special_tokens: bool = True
    adapter: str | None = None
    priority: int | None = None
    salt: str | None = None
    instruction: str | None = None
    names: FieldNames = TGI_NAMES

    @property
    def num_answers(self) -> int:
        return 1
