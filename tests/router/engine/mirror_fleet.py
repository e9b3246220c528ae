"""A fleet whose shards are a `ShardMirror`: what is sampled follows from all tokens before it, as far as memory has
them."""

from collections.abc import Callable
from dataclasses import replace

from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.row_result import RowResult
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.router.fleet.errors import FleetError
from tests.adapter_inputs import number_in
from tests.fakes import FACTS, Facts, ScriptedFleet
from tests.router.scheduling.shard_mirror import EOS, Mask, Resident, ShardMirror
from tests.scripted_engine import ids_of

MIRRORED = replace(FACTS, eos_token_ids=frozenset({EOS}), num_blocks=64)


class _Residents(dict[int, Resident]):
    """Knows the tokens of a first row's cached blocks by what the memory holds."""

    def __init__(self, plan: Plan, mirror: ShardMirror) -> None:
        super().__init__()
        self._rows = {row.slot: row for row in plan.rows}
        self._mirror = mirror

    def __missing__(self, slot: int) -> Resident:
        row = self._rows[slot]
        assert row.initial_state is not None
        adapter = number_in(row.initial_state)
        chain = [adapter]
        for position in range(row.start):
            block = self._mirror.memory[row.new_blocks[position // FACTS.block_size]]
            value = block[position % FACTS.block_size]
            assert value is not None
            chain.append(value)
        return Resident(chain, 0, adapter)


class MirrorFleet(ScriptedFleet):
    """Loses the group when a row comes that `kills`, and finds no number in rows that are `is_nan`."""

    def __init__(self, facts: Facts = MIRRORED, kills: Callable[[Row], bool] = lambda row: False) -> None:
        super().__init__(lambda row: 0)
        self.facts = facts
        self.kills = kills
        self.mirror = ShardMirror(facts.block_size, facts.num_blocks)

    async def open(self, limits: StreamLimits) -> Facts:
        self.mirror = self.mirror.successor()
        return await super().open(limits)

    async def next_result(self) -> StepResult:
        plan = self._pending[0]
        await super().next_result()
        if any(map(self.kills, plan.rows)):
            raise FleetError("killed")
        self.mirror.adapters = {*self.adapters}
        masks = {slot: [Mask(ids_of(mask))] for slot, mask in self.masks[-1][1].items()} if plan.masked else {}
        result = self.mirror.run(plan, _Residents(plan, self.mirror), masks)
        poisoned = {row.slot for row in plan.rows if self.is_nan(row)}
        rows = tuple(row._replace(logprobs=(float("nan"),)) if row.slot in poisoned else row for row in result.rows)
        return replace(result, rows=rows)

    def _run(self, row: Row, mask: bytes | None) -> RowResult:
        return RowResult(row.slot, (), ())  # the mirror has it
