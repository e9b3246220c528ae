"""Runs steps on a shard's model, in its memory and slots."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

import torch
from torch import Tensor

from penstock.contract.plan import Plan
from penstock.contract.pooling import POOLED
from penstock.contract.row_result import OtherResult, RowResult
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group
from penstock.shard.communication.stages import Stages
from penstock.shard.config import ShardConfig
from penstock.shard.devices.device import Device, Download, Moment, nanoseconds
from penstock.shard.execution import batch, other_results, pooled, prompt_logprobs, sampler
from penstock.shard.execution.batch import StepInputs
from penstock.shard.execution.loaded_model import LoadedModel
from penstock.shard.execution.masks import Masks
from penstock.shard.execution.memory import SequenceMemory
from penstock.shard.execution.other_results import MAKERS, Computed, Making
from penstock.shard.execution.prompt_logprobs import PromptLogprobsBatch, RowPromptLogprobs
from penstock.shard.execution.sampler import SamplingBatch
from penstock.shard.execution.sizes import sizes_of
from penstock.shard.execution.slots import OrderError, SlotTable
from penstock.shard.execution.watermark import Watermark
from penstock.shard.layers.decoder import Decoder
from penstock.shard.layers.encoder import Encoder
from penstock.shard.models.model import Hidden
from penstock.shard.pooling.pooler import Pooler
from penstock.shard.weights.rank_weights import Progress


@dataclass(frozen=True, slots=True)
class Outputs:
    """Holds the model's outputs of a step, and the inputs of sampling and prompt logprobs."""

    logits: Tensor | None                # float32 [sampled rows, V] on the rank that answers, None elsewhere
    prompt_logprobs: list[Tensor]        # as `prompt_logprobs.launch` returns them
    sampling_batch: SamplingBatch
    prompt_batch: PromptLogprobsBatch
    columns: Mapping[str, Tensor]        # of the two batches, on the device
    others: Mapping[str, Making]         # by kind
    drafted: Moment | None = None        # when the draft model ended, if there is one


@dataclass(frozen=True, slots=True)
class Launched:
    """Stands for a step whose work is all on its way. The marks tell when it began, when the draft model and the model
    ended, and when sampling began and ended."""

    step: Plan
    sampling_batch: SamplingBatch
    prompt_batch: PromptLogprobsBatch
    others: Mapping[str, Making]         # by kind; none on a rank that doesn't answer
    download: Download                   # of prompt logprobs, of all that was sampled, of the others
    num_prompt_tensors: int
    num_sampled_tensors: int
    marks: tuple[Moment, Moment, Moment, Moment, Moment]


class Executor:
    """Loads the model of `config` and runs steps on it. Every rank of `group` is given the same orders.

    Raises what reading a checkpoint raises, KvMemoryError, and ValueError if the kernels have no such KV cache. Orders
    that make no sense raise OrderError.
    """

    def __init__(
        self, config: ShardConfig, group: Group, progress: Progress | None = None,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        """tell: called when there is progress other than that a tensor was read"""
        self.config = config
        self.stages = Stages(group, config.pipeline_parallel_size)
        self._sizes = sizes_of(config, group)
        self.loaded = LoadedModel(config, self.stages, self._sizes, progress, tell)
        self.occupy()
        self.model = self.loaded.model
        self.pooler = self.loaded.pooler
        self.adapters = self.loaded.adapters
        self.drafter = self.loaded.drafter
        self._device = Device(dispatch.device())
        self._watermark = Watermark(config.watermark_gamma, config.watermark_delta)
        self._slots: SlotTable | None = None

    def occupy(self) -> None:
        """Take memory for sequences. All ranks call it together."""
        self.memory = SequenceMemory(self.config, self.stages, self.loaded, self._sizes)

    def release(self) -> None:
        """Let go of the memory of sequences and adapters; the weights stay, and steps can be run after `occupy`."""
        self.close()
        self.adapters.clear()
        self.memory.release()
        del self.memory

    def open(self, limits: StreamLimits) -> None:
        """Begin with empty slots."""
        self.stages.catch_up()
        self.adapters.begin(limits.epoch)
        self._slots = SlotTable(limits, self.memory.bounds, self._device, self.adapters)
        self.drafter.open(limits.max_slots)
        self.memory.forget_all()

    def close(self) -> None:
        """Forget all slots."""
        self.stages.catch_up()
        self._slots = None
        self.memory.forget_all()

    def execute(self, step: Plan, late_masks: Callable[[], Masks] = dict) -> StepResult:
        """Launch a step and wait for its result. No rank owes another anything then."""
        result = self.finish(self.launch(step, late_masks))
        self.stages.catch_up()
        return result

    @torch.inference_mode()
    def launch(self, step: Plan, late_masks: Callable[[], Masks] = dict) -> Launched:
        """Take the step in and send the device all its work, without waiting for any of it; a processor does it here.

        `late_masks` waits for the masks of the step: a time that counts neither as the model's nor as sampling's. Only
        a row with a watermark or with proposals waits for the device. The next step may be launched before this one is
        finished.
        """
        begin = self._device.mark()
        outputs = self.forward(step)
        end = self._device.mark()
        is_masked = self.stages.answers and any(row.late_mask for row in step.rows)
        masks = late_masks() if is_masked else {}
        sampling = self._device.mark()
        sampled = sampler.launch(outputs.sampling_batch, outputs.columns, outputs.logits, self._open_slots(),
                                 self.stages, self._watermark, masks)
        marks = begin, outputs.drafted or begin, end, sampling, self._device.mark()
        others = outputs.others if self.stages.answers else {}
        download = self._device.download([
            *outputs.prompt_logprobs, *sampled, *chain.from_iterable(each.tensors for each in others.values())])
        return Launched(step, outputs.sampling_batch, outputs.prompt_batch, others, download,
                        len(outputs.prompt_logprobs), len(sampled), marks)

    def finish(self, launched: Launched) -> StepResult:
        """Wait for a step's result. Steps are finished in the order of their launches, on any thread."""
        tensors = iter(launched.download.wait())
        of_prompts = prompt_logprobs.read(launched.prompt_batch, [*islice(tensors, launched.num_prompt_tensors)])
        sampled = sampler.read(launched.sampling_batch, [*islice(tensors, launched.num_sampled_tensors)])
        others = other_results.read(launched.others, tensors) if launched.others else {}
        begin, drafted, end, sampling_begin, sampling_end = launched.marks
        return StepResult(
            launched.step.step_id, _join(launched.step, sampled, of_prompts, others), nanoseconds(drafted, end),
            nanoseconds(sampling_begin, sampling_end), nanoseconds(begin, drafted))

    @torch.inference_mode()
    def forward(self, step: Plan) -> Outputs:
        """Take the step in and run the model, behind the draft model if there is one."""
        slots, memory = self._open_slots(), self.memory
        slots.apply(step)
        memory.forget(step.cleared_slots)
        memory.copy_blocks(step.block_copies)
        step, drafted = self.drafter.run(step, slots)
        sampling_batch = sampler.prepare([row for row in step.rows if row.is_sampled], slots, self.stages.answers)
        prompt_batch = prompt_logprobs.prepare(step.rows, slots)
        has_adapters = any(slots[row.slot].adapter for row in step.rows)
        padding = memory.graphs.padding_of(step.rows) if memory.graphs and not has_adapters else None
        if self.stages.is_behind and any(row.from_last_sample for row in step.rows):
            self.stages.catch_up()
        inputs = batch.build(step.rows, slots, {**sampling_batch.columns, **prompt_batch.columns}, padding)
        if self.config.die_on_token is not None and self.config.die_on_token in inputs.input_ids:
            os.kill(os.getpid(), signal.SIGKILL)
        logits, hidden, of_prompts = None, None, []
        if memory.graphs and padding and padding.is_decode:
            logits = memory.graphs.decode(inputs.input_ids, inputs.metadata, padding, len(step.rows))
        elif memory.graphs and padding:
            hidden = memory.graphs.forward(inputs.input_ids, inputs.metadata, padding)
        elif self.stages.count > 1:
            hidden = self._run_stage(inputs)
        else:
            hidden = self.model.forward(inputs.input_ids, inputs.metadata, memory.caches)
        if hidden and self.stages.is_last:
            logits = self.model.logits(hidden, inputs.output_rows)
            of_prompts = prompt_logprobs.launch(prompt_batch, inputs, partial(self.model.logits, hidden))
        computed = Computed(step.rows, slots, inputs, hidden if self.stages.is_last else None, logits)
        others = other_results.launch(computed) if MAKERS else {}
        if self.pooler is not None and (making := self._pool(self.pooler, computed)):
            others[POOLED] = making
        return Outputs(logits, of_prompts, sampling_batch, prompt_batch, inputs.columns, others, drafted)

    def _pool(self, pooler: Pooler, computed: Computed) -> Making | None:
        """Make the vectors and scores that rows ask for, where the model's last layers are."""
        if computed.hidden is None:
            return None
        assert isinstance(self.model, Decoder | Encoder), "no other model makes vectors"
        return pooled.launch(pooler, partial(self.model.vectors, computed.hidden), computed, self.stages.answers)

    def _run_stage(self, inputs: StepInputs) -> Hidden:
        """Run this stage's blocks on what the stage before made of the step, and hand the result on to the next."""
        assert isinstance(self.model, Decoder), "no other model has stages"
        before = None
        if not self.stages.is_first:
            x, delta = self.stages.receive((2, len(inputs.input_ids), self.model.config.hidden_size), self.model.dtype)
            before = x, delta
        hidden = self.model.forward(inputs.input_ids, inputs.metadata, self.memory.caches, before)
        if not self.stages.is_last:
            self.stages.hand_on(torch.stack([hidden.x, hidden.delta]))
        return hidden

    def _open_slots(self) -> SlotTable:
        if self._slots is None:
            raise OrderError("a step came before stream_limits")
        return self._slots


def _join(
    step: Plan, sampled: Mapping[int, RowResult], of_prompts: Mapping[int, RowPromptLogprobs],
    others: Mapping[int, tuple[OtherResult, ...]],
) -> tuple[RowResult, ...]:
    """Returns the results of the rows that have a sampled token, prompt logprobs or others, in the step's order.

    `sampled`, `of_prompts` and `others` are by slot.
    """
    results = dict(sampled)
    for slot, own in of_prompts.items():
        result = results.get(slot, RowResult(slot, (), ()))
        results[slot] = result._replace(
            prompt_logprobs=own.logprobs, prompt_top_logprobs=own.top_logprobs, prompt_ranks=own.ranks)
    for slot, each in others.items():
        results[slot] = results.get(slot, RowResult(slot, (), ()))._replace(others=each)
    return tuple(results[row.slot] for row in step.rows if row.slot in results)
