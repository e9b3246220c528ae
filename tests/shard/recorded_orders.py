"""Orders that one shard was given, to be given to a group: what it answers is compared, step by step."""

import functools
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from unittest import mock

from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult
from penstock.contract.stream_limits import StreamLimits
from penstock.shard.communication.distributed import Group, connect
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.masks import Masks
from tests.shard import scheduler_with_executor
from tests.shard.ranks import Outputs, execute
from tests.shard.scheduler_with_executor import Counted, Traffic, run_traffic
from tests.shard.spawned_ranks import Results, run_ranks
from tests.shard.step_programs import Request

Answer = tuple[tuple[RowResult, ...], bytes]


@dataclass
class Orders:
    """Streams and their steps with masks, and what came of each step: its results, and the logits behind them."""

    given: list[StreamLimits | tuple[Plan, Masks]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


def record(
    config: ShardConfig, requests: Sequence[Request], traffic: Traffic, expected: Outputs,
    adapters: Mapping[int, Path] | None = None,
) -> tuple[Orders, Outputs, Counted]:
    """Lets the real scheduler drive one shard, and returns what it ordered, the outputs, and what happened."""
    orders, executor = Orders(), Executor(config, Group())
    for number, path in (adapters or {}).items():
        executor.adapters.load(number, path).result()
    open_stream = executor.open

    def opened(limits: StreamLimits) -> None:
        orders.given.append(limits)
        open_stream(limits)

    def executed(executor: Executor, step: Plan, masks: Masks) -> tuple[tuple[RowResult, ...], object]:
        rows, logits = execute(executor, step, masks)
        assert logits is not None
        orders.given.append((step, masks))
        orders.answers.append((rows, logits.tobytes()))
        return rows, logits

    with mock.patch.object(executor, "open", opened), mock.patch.object(scheduler_with_executor, "execute", executed):
        outputs, counted = run_traffic(executor, requests, traffic, expected)
    return orders, outputs, counted


def replay(
    config: ShardConfig, orders: Orders, folder: Path, world_size: int, adapters: Mapping[int, Path] | None = None
) -> list[Answer]:
    """Returns what the answering rank of a group makes of the orders. No rank waits for another but where it must: each
    goes on with the next order when it has done its part of one."""
    config = replace(config, world_size=world_size, rendezvous=f"file://{folder / 'store'}")
    results = run_ranks(functools.partial(_replay_on_rank, config, orders.given, adapters), world_size, folder)
    (found,) = [each["answers"] for each in results if each]
    answers: list[Answer] = pickle.loads(found)
    return answers


def _replay_on_rank(
    config: ShardConfig, given: Sequence[StreamLimits | tuple[Plan, Masks]], adapters: Mapping[int, Path] | None,
    rank: int, world_size: int, folder: Path, barrier: Barrier,
) -> Results:
    group = connect(config.rendezvous, rank, world_size)
    executor = Executor(replace(config, rank=rank), group)
    for number, path in (adapters or {}).items():
        executor.adapters.load(number, path).result()
    for cache in executor.memory.caches:
        cache.data.fill_(0xFF)           # as NaN in every format
    answers = [_launch(executor, *order) for order in given if isinstance(order, tuple) or executor.open(order)]
    executor.close()
    barrier.wait()
    group.close()
    return {"answers": pickle.dumps(answers)} if executor.stages.answers else {}


def _launch(executor: Executor, step: Plan, masks: Masks) -> Answer:
    rows, logits = execute(executor, step, masks, catches_up=False)
    return rows, b"" if logits is None else logits.tobytes()
