"""The energy of a step on a group: what all of its shards have measured."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.protos import shard_pb2
from tests.router.fleet.test_fleet import LIMITS, EchoShard, running


class MeasuringShard(EchoShard):
    """Tells of so many microjoules with its steps, or of none."""

    def __init__(self, rank: int, *energies: int | None) -> None:
        super().__init__(rank)
        self._energies = iter(energies)

    async def Execute(self, orders: AsyncIterator[shard_pb2.Order], context: Any) -> AsyncIterator[Any]:
        async for result in super().Execute(orders, context):
            if (energy := next(self._energies)) is not None:
                result.energy_uj = energy
            yield result


async def test_it_is_known_if_all_shards_tell(tmp_path: Path) -> None:
    shards = MeasuringShard(0, 0, 0, None, 0), MeasuringShard(1, 5, None, 5, 0)
    async with running(tmp_path, *shards) as (fleet, _):
        await fleet.open(LIMITS)
        for step_id in range(4):
            await fleet.submit(Plan(step_id, (Row(slot=0, start=step_id, token_ids=(1,)),)))
        assert [(await fleet.next_result()).energy_uj for _ in range(4)] == [5, None, None, 0]
