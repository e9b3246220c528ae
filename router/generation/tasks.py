"""The routes that a model has: those of its tasks."""

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.router.errors import WrongTask

_ROUTES = {
    Task.GENERATE: ("/generate", "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"),
    Task.EMBED: ("/v1/embeddings", "/embed", "/similarity", "/v1/embed", "/v2/embed", "/v1/rerank", "/v2/rerank",
                 "/v1/score", "/pooling"),
    Task.EMBED_ALL: ("/embed_all", "/pooling"),
    Task.EMBED_SPARSE: ("/embed_sparse", "/pooling"),
    Task.CLASSIFY: ("/predict", "/classify", "/pooling"),
}
_OF_RERANKERS = ("/rerank", "/v1/rerank", "/v2/rerank", "/v1/score")
_DOES = {
    Task.GENERATE: "generates no text", Task.EMBED: "makes no vectors of texts",
    Task.EMBED_ALL: "makes no vectors of tokens", Task.EMBED_SPARSE: "makes no sparse vectors",
    Task.CLASSIFY: "gives texts no scores",
}


def reranks(facts: Facts) -> bool:
    """Tells whether a model gives a pair of texts one score, by which documents are ranked."""
    return Task.CLASSIFY in facts.tasks and len(facts.labels) == 1


def routes_of(facts: Facts) -> list[str]:
    """Returns the paths that the model has, of those that are for some models alone."""
    found = [path for task in Task if task in facts.tasks for path in _ROUTES[task]]
    return [*dict.fromkeys((*_OF_RERANKERS, *found) if reranks(facts) else found)]


def check_task(facts: Facts, task: Task, error: type[WrongTask] = WrongTask) -> None:
    """Raises the error if the model does not have the task."""
    if task not in facts.tasks:
        raise error(_DOES[task], routes_of(facts))


def check_reranks(facts: Facts, error: type[WrongTask] = WrongTask) -> None:
    """Raises the error if the model ranks no documents: it gives a pair of texts no score, or several."""
    if not reranks(facts):
        raise error("ranks no documents", routes_of(facts))
