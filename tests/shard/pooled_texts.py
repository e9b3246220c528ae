"""Running texts through a model that makes vectors or scores, whole, in chunks and beside one another."""

import functools
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.pooling import POOLED, POOLING, Pooling, Task
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.stream_limits import StreamLimits
from penstock.shard.communication.distributed import Group, connect
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from tests.adapter_inputs import adapter_value
from tests.shard.spawned_ranks import Results, run_ranks

PLAIN = Pooling(Task.EMBED, normalized=False)
BLOCK = 16
MAX_TOKENS = 512                         # of a text


@dataclass(frozen=True, slots=True)
class Asked:
    """The tokens of a text, and what is to be made of it."""

    ids: tuple[int, ...]
    pooling: Pooling = PLAIN
    adapter: int = 0


def asked(lengths: Sequence[int], vocab: int, pooling: Pooling = PLAIN, seed: int = 0) -> list[Asked]:
    """Returns texts of chance of these lengths."""
    rng = np.random.default_rng(seed)
    return [Asked(tuple(rng.integers(3, vocab, length).tolist()), pooling) for length in lengths]


def run_pooled(executor: Executor, texts: Sequence[Asked], chunk: int = MAX_TOKENS, together: int = 1) -> list[bytes]:
    """Returns what is made of each text, the values of its rows one after the other. So many texts are in a step
    `together`, each with the next `chunk` of its tokens. Only the rank that answers has some."""
    is_whole, width = executor.memory.bounds.is_whole, MAX_TOKENS // BLOCK
    executor.open(StreamLimits(max_slots=together, max_step_tokens=together * MAX_TOKENS, max_blocks_per_slot=width))
    for cache in executor.memory.caches:
        cache.data.fill_(0xFF)
    found = [b"" for _ in texts]
    number = 0
    for begin in range(0, len(texts), together):
        batch = texts[begin:begin + together]
        for start in range(0, max(len(text.ids) for text in batch), chunk):
            rows = tuple(_row(slot, text, start, chunk, () if is_whole else range(slot * width, (slot + 1) * width))
                         for slot, text in enumerate(batch) if start < len(text.ids))
            result = executor.execute(Plan(number, rows))
            number += 1
            for row in result.rows:
                found[begin + row.slot] += b"".join(other.value for other in row.others if other.kind == POOLED)
    executor.close()
    return found


def numbers(found: bytes, width: int = 0) -> Tensor:
    """Returns what was made of a text, or of each of its tokens if these have the `width`: float32."""
    values = torch.frombuffer(bytearray(found), dtype=torch.float32)
    return values.view(-1, width) if width else values


def on_ranks(config: ShardConfig, texts: Sequence[Asked], folder: Path, world_size: int) -> list[bytes]:
    """Returns what `run_pooled` does, on a group of so many ranks, all texts together."""
    if world_size == 1:
        return run_pooled(Executor(config, Group()), texts, together=len(texts))
    config = replace(config, world_size=world_size, rendezvous=f"file://{folder / f'store{world_size}'}")
    results = run_ranks(functools.partial(_run_on_rank, config, texts), world_size, folder)
    (found,) = [each["found"] for each in results if each]
    return list(pickle.loads(found))


def _run_on_rank(
    config: ShardConfig, texts: Sequence[Asked], rank: int, world_size: int, folder: Path, barrier: Barrier
) -> Results:
    group = connect(config.rendezvous, rank, world_size)
    executor = Executor(replace(config, rank=rank), group)
    found = run_pooled(executor, texts, together=len(texts))
    group.close()
    return {"found": pickle.dumps(found)} if executor.stages.answers else {}


def _row(slot: int, text: Asked, start: int, chunk: int, blocks: Sequence[int]) -> Row:
    end = min(start + chunk, len(text.ids))
    is_last, is_first = end == len(text.ids), start == 0
    wants = is_last or text.pooling.task is Task.EMBED_ALL
    state = InitialState(Sampling(), len(text.ids), side_inputs={
        POOLING: text.pooling.encode(), **adapter_value(text.adapter)})
    return Row(slot, start, text.ids[start:end], new_blocks=tuple(blocks) if is_first else (),
               output=Output.POOL if wants else Output.NONE, initial_state=state if is_first else None)


@torch.no_grad()
def their_states(load: Callable[[Path], Any], path: Path, text: Asked) -> Tensor:
    """Returns the vectors [T, C] of a text's tokens that transformers computes, by the model that `load` reads."""
    written = tuple((path / name).stat().st_mtime_ns for name in ("config.json", "model.safetensors"))
    states: Tensor = _loaded(load, path, written)(torch.tensor([text.ids])).last_hidden_state[0]
    return states


@functools.lru_cache(maxsize=1)
def _loaded(load: Callable[[Path], Any], path: Path, written: tuple[int, ...]) -> Any:
    """Reads a model once for all texts while its files are those of that time."""
    return load(path)
