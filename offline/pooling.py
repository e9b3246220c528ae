"""Asks for the vectors and scores of many texts at once."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from penstock.contract.pooling import Task
from penstock.offline.asking import AWAY, adapter_named
from penstock.offline.batch import each_of
from penstock.offline.failures import as_error
from penstock.offline.model import Model
from penstock.offline.outputs import LoRARequest, RequestOutput
from penstock.offline.pooling_params import PoolingParams
from penstock.offline.progress import shown
from penstock.offline.prompts import Prompt
from penstock.offline.window import ask_each
from penstock.router.errors import Unhealthy
from penstock.router.generation.asking import Asking
from penstock.router.generation.service import Service
from penstock.router.generation.spec import FieldNames
from penstock.router.pooling.pooled import Pooled
from penstock.router.pooling.pooling import pooled
from penstock.router.pooling.reranking import Pair, Scored, score_pairs
from penstock.router.pooling.scores import activated
from penstock.router.pooling.spec import PoolingSpec

TASKS = {"embed": Task.EMBED, "classify": Task.CLASSIFY, "token_embed": Task.EMBED_ALL}
"""By vLLM's names."""
NAMES = FieldNames(inputs="prompts", truncate="truncate_prompt_tokens")
PAIRS = FieldNames(inputs="data_2", truncate="truncate_prompt_tokens")
Bar = bool | Callable[..., object]
AnyParams = PoolingParams | Sequence[PoolingParams] | None
AnyAdapter = LoRARequest | Sequence[LoRARequest | None] | None


@dataclass(frozen=True, slots=True)
class _Wish:
    place: int
    prompt: Prompt
    params: PoolingParams
    adapter: LoRARequest | None


def pool(
    model: Model, prompts: Sequence[Prompt], task: Task, pooling_params: AnyParams, lora_request: AnyAdapter,
    use_tqdm: Bar,
) -> list[Pooled]:
    """Returns the vector of each prompt, its scores, activated unless its parameters say otherwise, or the vectors of
    its tokens."""
    service, number = model.service, len(prompts)
    params = each_of("pooling_params", PoolingParams() if pooling_params is None else pooling_params, number)
    for each in params:
        if not isinstance(each, PoolingParams):
            raise TypeError(f"pooling_params must be PoolingParams. Given: {type(each).__name__}")
    adapters = each_of("lora_request", lora_request, number)
    wishes = [_Wish(*each) for each in zip(range(number), prompts, params, adapters, strict=True)]
    with shown(use_tqdm, number, "Prompts") as tell:
        return model.loop.run(_pool_all(model, service, wishes, task, tell))


async def _pool_all(
    model: Model, service: Service, wishes: Sequence[_Wish], task: Task, tell: Callable[[RequestOutput], None]
) -> list[Pooled]:
    """Returns the results in the order of the wishes. The first error ends all of them."""
    found: dict[int, Pooled] = {}

    async def in_order() -> AsyncIterator[_Wish]:
        for wish in wishes:
            yield wish

    async def ask(wish: _Wish) -> None:
        params = wish.params
        try:
            adapter = await adapter_named(model.session, service, wish.adapter)
            spec = PoolingSpec(
                wish.prompt.inputs, task, truncates=params.truncates, max_tokens=params.most_tokens,
                dimensions=params.dimensions, normalized=params.use_activation is not False, adapter=adapter,
                adds_special_tokens=wish.prompt.add_special_tokens, salt=wish.prompt.cache_salt, names=NAMES)
            with Asking(service) as asking:
                [result] = await pooled(asking, [spec])
        except Exception as error:
            raise _told(model, error) from error
        if task is Task.CLASSIFY and params.use_activation is not False:
            result.values[:] = type(result.values)("f", activated(result.values, service.facts.activation))
        found[wish.place] = result
        tell(RequestOutput("", None, [*result.ids], [], finished=True))

    await ask_each(in_order(), service.engine.num_slots, ask)
    return [found[wish.place] for wish in wishes]


def score(
    model: Model, pairs: Sequence[Pair], params: PoolingParams, lora_request: LoRARequest | None, use_tqdm: Bar
) -> Scored:
    """Returns the scores of pairs of texts."""
    with shown(use_tqdm, 1, "Pairs") as tell:
        scored = model.loop.run(_score(model, model.service, pairs, params, lora_request))
        tell(RequestOutput("", None, [], [], finished=True))
    return scored


async def _score(
    model: Model, service: Service, pairs: Sequence[Pair], params: PoolingParams, lora_request: LoRARequest | None
) -> Scored:
    try:
        adapter = await adapter_named(model.session, service, lora_request)
        like = PoolingSpec("", Task.CLASSIFY, truncates=params.truncates, max_tokens=params.most_tokens,
                           dimensions=params.dimensions, adapter=adapter, names=PAIRS)
        with Asking(service) as asking:
            return await score_pairs(asking, pairs, like, is_raw=params.use_activation is False)
    except Exception as error:
        raise _told(model, error) from error


def _told(model: Model, error: Exception) -> Exception:
    """Returns the error as a program is told it."""
    if isinstance(error, Unhealthy):
        return as_error(model.session.failure or Unhealthy(AWAY))
    return as_error(model.session.failure or error)


def pairs_of(data_1: object, data_2: object) -> list[Pair]:
    """Returns the pairs of one text and one, one and many, or many and as many. Raises TypeError and ValueError."""
    sides = []
    for name, data in (("data_1", data_1), ("data_2", data_2)):
        texts = [data] if isinstance(data, str) else data
        if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise TypeError(f"`{name}` must be a text or a list of texts, none of them empty. "
                            f"Given: {type(data).__name__}")
        sides.append([*texts])
    firsts, seconds = sides
    if len(firsts) not in (1, len(seconds)):
        raise ValueError(f"`data_1` must be one text, or as many as `data_2`. Given: {len(firsts)} and {len(seconds)}")
    return [*zip(firsts * (len(seconds) // len(firsts)), seconds, strict=True)]
