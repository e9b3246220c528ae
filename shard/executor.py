"""One shard's model, KV memory and slots: what an order acts on."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from kernels import dispatch
from shard import batch
from shard.config import ShardConfig
from shard.distributed import Group
from shard.kv_cache import KV_DTYPES, KvShape, num_blocks
from shard.masks import Masks
from shard.models.config import DTYPES
from shard.models.decoder import Decoder
from shard.sampler import sample_rows
from shard.scorer import Scores, score_rows
from shard.slots import Bounds, OrderError, SlotTable
from shard.step import Facts, Open, RowResult, Step, StepResult
from shard.watermark import Watermark
from shard.weights import Checkpoint, Progress

CONTRACT_VERSION = 1                     # of the bits: other numbers for an equal request need another version


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the model says of a step. On ranks other than 0 it is nothing."""

    logits: Tensor | None                # float32 [sampled rows, V]
    scores: Mapping[int, Scores]         # of the slots with score_ids


class Executor:
    """Loads the model of `config` and runs steps on it. Every rank of `group` is given the same orders.

    Raises what reading a checkpoint raises, KvMemoryError, and ValueError if the kernels have no such KV cache. Orders
    that make no sense raise OrderError.
    """

    def __init__(self, config: ShardConfig, group: Group, progress: Progress | None = None) -> None:
        self._config = config
        self._group = group
        self.decoder = Decoder.load(config.model, DTYPES[config.dtype] if config.dtype else None, group, progress)
        model = self.decoder.config
        shape = KvShape(
            model.num_layers, self.decoder.num_kv_heads, model.head_dim, config.block_size,
            KV_DTYPES[config.kv_cache_dtype] if config.kv_cache_dtype else self.decoder.dtype)
        blocks = num_blocks(shape, config.kv_memory, model.context_length, group.world_size)
        self.caches = shape.allocate(blocks)
        self.bounds = Bounds(config.block_size, blocks, model.context_length, model.vocab_size)
        self._digest = Checkpoint(config.model).digest()
        self._watermark = Watermark(config.watermark_gamma, config.watermark_delta)
        self._slots: SlotTable | None = None

    def facts(self, step_tokens: int) -> Facts:
        """What the router must know; `step_tokens` is measured by others."""
        dtype = str(self.decoder.dtype).removeprefix("torch.")
        kv_dtype = self._config.kv_cache_dtype or dtype
        return Facts(
            model_id=self._config.model_id or str(self._config.model),
            dtype=dtype,
            kv_dtype=kv_dtype,
            block_size=self.bounds.block_size,
            num_blocks=self.bounds.num_blocks,
            vocab_size=self.bounds.vocab_size,
            eos_token_ids=self.decoder.config.eos_token_ids,
            context_length=self.bounds.context_length,
            rank=self._group.rank,
            world_size=self._group.world_size,
            numerics=f"{dispatch.path()}/{dtype}/kv-{kv_dtype}/contract-{CONTRACT_VERSION}",
            weights_digest=self._digest,
            step_tokens=step_tokens)

    def open(self, limits: Open) -> None:
        """Begin with empty slots."""
        self._slots = SlotTable(limits, self.bounds)

    def close(self) -> None:
        """Forget all slots."""
        self._slots = None

    def execute(self, step: Step, late_masks: Callable[[], Masks] = dict) -> StepResult:
        """`late_masks` waits for the masks of the step: a time that counts neither as the model's nor as sampling's."""
        began = time.perf_counter_ns()
        outputs = self.forward(step)
        forward_ns = time.perf_counter_ns() - began
        is_masked = self._group.rank == 0 and any(row.late_mask for row in step.rows)
        masks = late_masks() if is_masked else {}
        sampling = time.perf_counter_ns()
        rows = self.sample(step, outputs, masks)
        return StepResult(step.step_id, rows, forward_ns, time.perf_counter_ns() - sampling)

    @torch.inference_mode()
    def forward(self, step: Step) -> Outputs:
        """Take the step in and run the model."""
        slots = self._open_slots()
        slots.apply(step)
        inputs = batch.build(step.rows, slots)
        if self._config.die_on_token is not None and self._config.die_on_token in inputs.input_ids:
            os.kill(os.getpid(), signal.SIGKILL)
        hidden = self.decoder.forward(inputs, self.caches)
        scores = score_rows(step.rows, inputs, slots, partial(self.decoder.logits, hidden))
        return Outputs(self.decoder.logits(hidden, inputs.output_rows), scores)

    @torch.inference_mode()
    def sample(self, step: Step, outputs: Outputs, masks: Masks) -> tuple[RowResult, ...]:
        """The step's tokens, which every rank keeps for the steps that follow, and its scores."""
        rows = [row for row in step.rows if row.is_sampled]
        sampled = sample_rows(
            rows, outputs.logits, self._open_slots(), self._group, self._watermark, masks) if rows else {}
        scored = {
            slot: replace(sampled.get(slot, RowResult(slot, (), ())), scores=scores.logprobs, score_top=scores.top)
            for slot, scores in outputs.scores.items()}
        results = {**sampled, **scored}
        return tuple(results[row.slot] for row in step.rows if row.slot in results)

    def _open_slots(self) -> SlotTable:
        if self._slots is None:
            raise OrderError("a step came before open")
        return self._slots
