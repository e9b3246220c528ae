"""The one way from requests to tensors, for HTTP and gRPC."""

from penstock.contract.pooling import Task
from penstock.router.api.kserve import generation, pooling
from penstock.router.api.kserve.generation import Whole
from penstock.router.api.kserve.inference import Inference, Inferred
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import Wish


async def infer(asking: Asking, inference: Inference, wish: Wish) -> tuple[Whole | None, Inferred]:
    """Returns the tensors that answer a request, and, for text, the answers that they tell of. Raises RouterError."""
    if Task.GENERATE not in asking.service.facts.tasks:
        return None, await pooling.infer(asking, inference)
    whole = await generation.whole(asking, inference, wish)
    return whole, whole.inferred


def streams(inference: Inference, default: bool) -> bool:
    """Tells whether a part of the answer is to come at a time. Raises ValidationError."""
    if Task.GENERATE not in inference.model.service.facts.tasks:
        return False
    return generation.streams(inference, default)
