"""What the checkpoints of native families are, found out by running them."""

import logging
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from tqdm import tqdm
from transformers.utils.logging import disable_progress_bar

from penstock.shard.config import ShardConfig
from penstock.shard.models.reading import read_model_config
from penstock.shard.models.rounding_methods import ROUNDINGS
from tests.family_models import make_family
from tests.models import gguf_file, quantised
from tests.shard.equalities import (
    CHUNKS,
    GREEDY_PROMPTS,
    NUM_GREEDY,
    first_in_chunks,
    on_shards,
    one_by_one,
    our_greedy_tokens,
    ours,
    their_greedy_tokens,
    theirs,
    together,
    twice_with_losses,
    two_threads,
    typical_requests,
)
from tests.shard.ranks import make_config

DTYPE = "bfloat16"                       # of all but what is compared with transformers
GROUPS = (2, 4)                          # shards
AT_ONCE = 24                             # models that one group of shards loads one after the other


@dataclass(frozen=True, slots=True)
class Found:
    """What is so of one checkpoint."""

    name: str                            # in FAMILY_MODELS
    architecture: str
    difference: float                    # the largest of any float32 logit to transformers'
    is_greedy_equal: bool | None         # None: its context is too short to tell
    equalities: dict[str, bool | None]   # by what is done otherwise; None: it is not done
    shards: tuple[int, ...]              # the numbers of shards with the bits of one
    roundings: tuple[str, ...]           # the --quantize that it can be loaded with
    methods: tuple[str, ...]             # the quant_methods that it can be read in
    has_gguf: bool


def measure(names: Sequence[str]) -> list[Found]:
    """Measures checkpoints of FAMILY_MODELS, with bars for progress; as many at once as there are processors."""
    _prepare()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), spawn, _prepare) as pool:
        found = list(tqdm(pool.map(measure_alone, names), desc="Alone", unit="model", total=len(names)))
    equal_on = {size: set(tqdm(_equal_on(names, size), desc=f"{size} shards", unit="model", total=len(names)))
                for size in GROUPS}
    return [replace(each, shards=(1, *(size for size in GROUPS if each.name in equal_on[size]))) for each in found]


def _prepare() -> None:
    """Leaves the other processors to other models, and the screen to the bars."""
    torch.set_num_threads(1)
    disable_progress_bar()
    logging.disable(logging.WARNING)


def measure_alone(name: str) -> Found:
    """Measures all but what takes several shards."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        model = make_family(folder / "model", name)
        return Found(
            name=name,
            architecture=read_model_config(model).architecture,
            difference=float((ours(model, torch.float32) - theirs(model, torch.float32)).abs().max()),
            is_greedy_equal=_is_greedy_equal(model, folder),
            equalities=_equalities(make_config(model, DTYPE), folder),
            shards=(1,),
            roundings=tuple(each for each in ROUNDINGS if _can_be_rounded(model, each, folder)),
            methods=tuple(each for each in quantised.METHODS if quantised.is_read(model, each, folder / each)),
            has_gguf=gguf_file.is_read(model, folder))


def _is_greedy_equal(model: Path, folder: Path) -> bool | None:
    if read_model_config(model).context_length < max(GREEDY_PROMPTS) + NUM_GREEDY:
        return None
    return our_greedy_tokens(model, folder) == their_greedy_tokens(model)


def _equalities(config: ShardConfig, folder: Path) -> dict[str, bool | None]:
    requests = typical_requests()
    expected = one_by_one(config, requests, folder)
    with two_threads():
        in_threads = one_by_one(config, requests, folder)
    first, second, counted = twice_with_losses(config, requests)
    is_equal = first == second == expected
    return {
        "batched": together(config, requests, folder) == expected,
        "chunked": first_in_chunks(config, requests, folder) == [expected[:1]] * len(CHUNKS),
        "cached": is_equal if counted.hit_tokens else None,
        "replayed": is_equal if counted.replayed else None,
        "threads": in_threads == expected}


def _can_be_rounded(model: Path, rounding: str, folder: Path) -> bool:
    """Tells whether a model is served with --quantize, and batches leave its bits alone then, too."""
    config = replace(make_config(model, DTYPE), quantize=rounding)
    requests = typical_requests()[:2]
    return together(config, requests, folder) == one_by_one(config, requests, folder)


def _equal_on(names: Sequence[str], world_size: int) -> Iterator[str]:
    """Yields the names of the models that have the same bits on a group of shards as on one."""
    requests = typical_requests()
    for start in range(0, len(names), AT_ONCE):
        with TemporaryDirectory() as made:
            folder, some = Path(made), names[start : start + AT_ONCE]
            configs = [make_config(make_family(folder / str(index), name), DTYPE) for index, name in enumerate(some)]
            sharded, single = (on_shards(configs, requests, folder, size) for size in (world_size, 1))
            yield from (name for name, one, other in zip(some, sharded, single, strict=True) if one == other)
