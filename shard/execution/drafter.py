"""The draft model: a small model that proposes how sequences go on, before the model itself verifies it.

It keeps keys and values of its own for the same blocks. Prompts are run through it when the model computes them, so
what is shared of a prefix has its keys, too. Of an answer it takes in nothing until it is asked, or until much is
missing. What it reads may be stale where blocks came from elsewhere: its proposals are worse then, and no answer
depends on them.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.kernels import dispatch
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.kv_cache import KvCache
from penstock.kernels.paged_attention import allocate_cache
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.devices.device import Moment
from penstock.shard.execution.batch import pad, place
from penstock.shard.execution.graphs import StepGraphs
from penstock.shard.execution.kv_cache import KvShape, cache_dtype
from penstock.shard.execution.slots import Bounds, SlotTable
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.model import Hidden, Model, ModelFacts
from penstock.shard.models.model_options import AS_STORED
from penstock.shard.models.reading import DTYPES, is_native
from penstock.shard.weights.rank_weights import Progress

MOST_MISSING = 32
"""Tokens of a slot that the draft model may not have taken in, before it does so without being asked."""
MOST_TAKEN = 256
"""Tokens that it takes in without being asked, of answers in one step."""


@dataclass(frozen=True, slots=True)
class Span:
    """Names the positions of a slot from `start` up to `end`."""

    slot: int
    start: int
    end: int


class Drafter:
    """Proposes how sequences go on: this one, of a shard without a draft model, proposes nothing and takes no memory.
    """

    context_length = 0                   # tokens of a sequence that the draft model takes
    token_bytes = 0                      # of a token's keys and values
    caches: Sequence[KvCache] = ()
    graphs: StepGraphs | None = None     # captured once the memory has its size

    def allocate(self, num_blocks: int) -> None: ...

    def aside(self, num_blocks: int) -> AbstractContextManager[None]:
        return nullcontext()

    def new_graphs(self, config: ShardConfig) -> list[StepGraphs]:
        return []

    def open(self, max_slots: int) -> None: ...

    def run(self, step: Plan, slots: SlotTable) -> tuple[Plan, Moment | None]:
        """Returns the step with the proposals that rows want as drafts, and a mark behind the work."""
        return step, None


class DraftModel(Drafter):
    """Runs the draft model. All ranks of the group run the same steps in the same order."""

    def __init__(self, model: Model, shape: KvShape, group: Group) -> None:
        self.shape = shape
        self.context_length = model.facts.context_length
        self.token_bytes = -(-shape.block_bytes // shape.block_size)
        self._model = model
        self._group = group
        self._written = np.empty(0, np.int64)

    def allocate(self, num_blocks: int) -> None:
        """Replace the memory by one of so many blocks, all zero: a sequence may begin with blocks that were never
        written here. The system gives a processor's memory as it is first written to."""
        shape, size = self.shape, num_blocks * self.shape.block_bytes // max(1, self.shape.num_layers)
        self.caches = caches = []        # what was before must go first
        is_host = torch.device(dispatch.device()).type == "cpu"
        for _ in range(shape.num_layers):
            memory = torch.from_numpy(np.zeros(size, np.uint8)) if is_host else torch.zeros(
                size, dtype=torch.uint8, device=dispatch.device())
            caches.append(allocate_cache(
                num_blocks, block_size=shape.block_size, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim,
                dtype=shape.dtype, device=dispatch.device(), memory=memory))

    @contextmanager
    def aside(self, num_blocks: int) -> Iterator[None]:
        """Lets steps run, as they are, in a little memory of their own while the block runs."""
        own = self.caches, self.graphs
        self.allocate(num_blocks)
        self.graphs = None
        try:
            yield
        finally:
            self.caches, self.graphs = own

    def new_graphs(self, config: ShardConfig) -> list[StepGraphs]:
        """Makes room for the steps that are to be captured. All are captured alike: of those in which each row has one
        token, the logits are computed behind them, too."""
        bounds = Bounds(self.shape.block_size, self.caches[0].num_blocks - 1, self.context_length,
                        self._model.facts.vocab_size)
        sizes = config.mixed_graph_sizes if self._model.is_capturable else ()
        return [StepGraphs(self._model, self.caches, bounds, (), sizes, config.max_step_rows)]

    def open(self, max_slots: int) -> None:
        """Begin with empty slots."""
        self._written = np.zeros(max_slots, np.int64)

    def run(self, step: Plan, slots: SlotTable) -> tuple[Plan, Moment | None]:
        """Take in what the draft model is to know of a step that `slots` has taken in, and propose what rows want.

        Returns the step with the proposals as drafts, and a mark behind the work. Only a step with such rows waits for
        the device.
        """
        return self._with_proposals(step, slots), slots.device.mark()

    def _with_proposals(self, step: Plan, slots: SlotTable) -> Plan:
        asking = sorted((row for row in step.rows if row.num_proposals), key=lambda row: -row.num_proposals)
        spans = self._to_take_in(step.rows, asking)
        if not spans:
            return step
        hidden = self._forward(spans, slots)
        if not asking:
            return step
        ends = np.cumsum([span.end - span.start for span in spans])
        rounds = [self._choose(hidden, ends[:len(asking)] - 1, asking, 0, slots)]
        for number in range(1, asking[0].num_proposals):
            going_on = [row for row in asking if row.num_proposals > number]
            hidden = self._forward([Span(row.slot, row.first_sample + number - 1, row.first_sample + number)
                                    for row in going_on], slots)
            rounds.append(self._choose(hidden, np.arange(len(going_on)), going_on, number, slots))
        found = {row.slot: row for row in _with_drafts(asking, torch.cat(rounds).cpu().numpy())}
        return replace(step, rows=tuple(found.get(row.slot, row) for row in step.rows))

    def _to_take_in(self, rows: Sequence[Row], asking: Sequence[Row]) -> list[Span]:
        """Returns the positions to run: first those of the rows that ask, then prompts and what is missing of answers.
        """
        for row in rows:
            before = row.start if row.initial_state else int(self._written[row.slot])
            self._written[row.slot] = min(before, row.start)
        spans = [self._take_in(row, row.first_sample) for row in asking]
        num_taken = 0
        for row in rows:
            end = row.end - row.num_guesses
            missing = end - int(self._written[row.slot])
            if row.num_proposals or end > self.context_length:
                continue
            if end - row.start == 1:
                if missing < MOST_MISSING or num_taken + missing > MOST_TAKEN:
                    continue
                num_taken += missing
            spans.append(self._take_in(row, end))
        for row in asking:
            self._written[row.slot] += row.num_proposals - 1
        return spans

    def _take_in(self, row: Row, end: int) -> Span:
        span = Span(row.slot, int(self._written[row.slot]), end)
        self._written[row.slot] = end
        return span

    def _forward(self, spans: Sequence[Span], slots: SlotTable) -> Hidden:
        """Run the draft model on tokens that `slots` has."""
        slot_ids, starts, ends = np.array([(span.slot, span.start, span.end) for span in spans], np.int64).T
        counts = ends - starts
        hosts = place(slot_ids, starts, counts, slots)
        places = np.repeat(slot_ids, counts) * slots.max_history + hosts["positions"]
        padding = self.graphs.padding_for(len(places), len(spans)) if self.graphs else None
        if padding is not None:
            pad(hosts, padding, self.shape.block_size)
        # What pads the tokens is one of them.
        hosts["places"] = np.pad(places, (0, len(hosts["positions"]) - len(places)), "edge")
        there = dict(zip(hosts, slots.device.upload(list(hosts.values())), strict=True))
        metadata = AttentionMetadata(
            there["positions"], there["slot_mapping"], there["tables"], there["starts"], there["counts"],
            is_decode=bool((hosts["counts"] == 1).all()))
        ids = slots.kept(there["places"])
        if self.graphs and padding:
            return self.graphs.forward(ids, metadata, padding)
        return self._model.forward(ids, metadata, self.caches)

    def _choose(
        self, hidden: Hidden, output_rows: npt.NDArray[np.int64], rows: Sequence[Row], number: int, slots: SlotTable
    ) -> Tensor:
        """Returns the likeliest token of each row as its proposal of this number, int64 [R]; `slots` keeps it."""
        places = np.array([row.slot * slots.max_history + row.first_sample + number for row in rows], np.int64)
        there, places_there = slots.device.upload([output_rows.astype(np.int64), places])
        logits = self._model.logits(hidden, there)
        # Of what is not a number, the maximum is the first such place: still a token.
        ids = torch.empty(len(rows), dtype=torch.int64, device=there.device) if logits is None else logits.argmax(1)
        self._group.broadcast(ids)
        slots.keep(places_there, ids)
        return ids


def load_drafter(
    config: ShardConfig, group: Group, target: ModelFacts, progress: Progress | None = None
) -> Drafter:
    """Reads this rank's part of the draft model, if there is one.

    Raises ModelConfigError if it can't draft for the model of these facts, and what reading a checkpoint raises.
    """
    folder = config.draft_model
    if folder is None:
        return Drafter()
    if not is_native(folder, AS_STORED):
        raise ModelConfigError(f"{folder}: --draft-model-id needs one of the native architectures")
    model = Decoder.load(folder, DTYPES[config.dtype] if config.dtype else None, group, progress)
    layout = model.facts.layout
    if layout.state is not None or target.layout.state is not None:
        which = "the draft model" if layout.state is not None else "the model"
        raise ModelConfigError(f"{folder}: --draft-model-id: {which} carries a state from token to token, from "
                               "which a wrong guess can't be taken back")
    if model.facts.vocab_size != target.vocab_size:
        raise ModelConfigError(f"{folder}: --draft-model-id: the draft model's vocabulary has "
                               f"{model.facts.vocab_size} tokens, and the model's {target.vocab_size}")
    dtype = cache_dtype(config.kv_cache_dtype) or model.dtype
    shape = KvShape(layout.num_caches, layout.num_kv_heads, layout.head_dim, config.block_size, dtype,
                    layout.token_bytes)
    return DraftModel(model, shape, group)


def _with_drafts(rows: Sequence[Row], ids: npt.NDArray[np.int64]) -> Iterator[Row]:
    """Yields the rows, in descending order of their proposals, with these as drafts: `ids` has the first proposal of
    each row, then the second of each that has one, and so on."""
    per_round = [sum(row.num_proposals > number for row in rows) for number in range(rows[0].num_proposals)]
    begins = np.cumsum([0, *per_round[:-1]])
    for index, row in enumerate(rows):
        own = ids[begins[:row.num_proposals] + index].tolist()
        yield row._replace(token_ids=(*row.token_ids, *own), num_drafts=row.num_proposals, num_proposals=0)
