"""Running whole texts through an encoder's executor, on a group of one or more ranks."""

import functools
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.pooling import POOLING, Pooling
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.stream_limits import StreamLimits
from penstock.shard.communication.distributed import Group, connect
from penstock.shard.config import ShardConfig
from penstock.shard.execution import other_results
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.other_results import Computed, Making
from tests.adapter_inputs import adapter_value
from tests.encoder_models import reference
from tests.shard.spawned_ranks import Results, run_ranks

HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Text:
    """The tokens of a text, or of a pair whose second begins at `second`."""

    ids: tuple[int, ...]
    second: int = 0
    adapter: int = 0


def texts(lengths: Sequence[int], vocab: int, seed: int = 0) -> list[Text]:
    """Returns texts of chance of these lengths, of which every other one is a pair."""
    rng = np.random.default_rng(seed)
    return [Text(tuple(rng.integers(3, vocab, length).tolist()), length // 2 if index % 2 else 0)
            for index, length in enumerate(lengths)]


def run_whole(executor: Executor, steps: Sequence[Sequence[Text]]) -> list[bytes]:
    """Returns the last hidden states of all tokens of each text, as bytes; each step has some texts. Only the rank that
    answers has some."""
    executor.open(StreamLimits(
        max_slots=max(map(len, steps)), max_step_tokens=max(sum(len(text.ids) for text in step) for step in steps),
        max_blocks_per_slot=0))
    found: list[bytes] = []
    with mock.patch.dict(other_results.MAKERS, {HIDDEN: _hidden}):
        for number, step in enumerate(steps):
            result = executor.execute(Plan(number, tuple(_row(executor, *row) for row in enumerate(step))))
            found += [other.value for row in result.rows for other in row.others if other.kind == HIDDEN]
    executor.close()
    return found


def states_of(found: bytes, width: int) -> Tensor:
    """Returns what `run_whole` found of a text: float32 [T, C]."""
    return torch.frombuffer(bytearray(found), dtype=torch.float32).view(-1, width)


def on_ranks(
    configs: Sequence[ShardConfig], steps: Sequence[Sequence[Text]], folder: Path, world_size: int
) -> list[list[bytes]]:
    """Returns what `run_whole` does for each of these models, on one group of so many ranks that loads one after the
    other."""
    if world_size == 1:
        return [run_whole(Executor(config, Group()), steps) for config in configs]
    rendezvous = f"file://{folder / f'store{world_size}'}"
    configs = [replace(config, world_size=world_size, rendezvous=rendezvous) for config in configs]
    results = run_ranks(functools.partial(_run_on_rank, configs, steps), world_size, folder)
    (found,) = [each["found"] for each in results if each]
    return list(pickle.loads(found))


def _run_on_rank(
    configs: Sequence[ShardConfig], steps: Sequence[Sequence[Text]], rank: int, world_size: int, folder: Path,
    barrier: Barrier
) -> Results:
    group = connect(configs[0].rendezvous, rank, world_size)
    found = [run_whole(Executor(replace(config, rank=rank), group), steps) for config in configs]
    group.close()
    return {"found": pickle.dumps(found)} if rank == 0 else {}


def _row(executor: Executor, slot: int, text: Text) -> Row:
    assert executor.pooler is not None, "a model that makes vectors or scores"
    sides = {POOLING: Pooling(executor.pooler.config.tasks[0], second=text.second).encode()}
    sides |= adapter_value(text.adapter)
    return Row(slot, 0, text.ids, output=Output.POOL,
               initial_state=InitialState(Sampling(), len(text.ids), side_inputs=sides))


def _hidden(computed: Computed) -> Making | None:
    """Makes the last hidden states of each row."""
    assert computed.hidden is not None
    states = (computed.hidden.x + computed.hidden.delta).float()
    counts = [row.num_inputs for row in computed.rows]

    def read(tensors: Sequence[Tensor]) -> dict[int, bytes]:
        parts = torch.split(tensors[0], counts)
        return {row.slot: part.numpy().tobytes() for row, part in zip(computed.rows, parts, strict=True)}

    return Making([states], read)


@torch.no_grad()
def their_states(path: Path, given: Sequence[Text]) -> list[Tensor]:
    """Returns the last hidden states that transformers computes of each text, [T, C]."""
    encoder, found = reference(path), []
    has_types = (getattr(encoder.config, "type_vocab_size", 0) or 0) > 1
    for text in given:
        types = torch.tensor([[int(bool(text.second) and index >= text.second) for index in range(len(text.ids))]])
        states: Tensor = encoder(
            torch.tensor([text.ids]), **({"token_type_ids": types} if has_types else {})).last_hidden_state[0]
        found.append(states)
    return found
