"""Owns one shard's model, KV memory and slots, and runs steps on them."""

import os
import secrets
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.adapters.store import AdapterStore
from penstock.shard.communication.distributed import Group
from penstock.shard.communication.stages import Stages
from penstock.shard.config import ShardConfig
from penstock.shard.devices import gpu
from penstock.shard.devices.device import Device, Download, Moment, nanoseconds
from penstock.shard.execution import batch, prompt_logprobs, sampler
from penstock.shard.execution.batch import Padding, StepInputs
from penstock.shard.execution.drafter import Drafter
from penstock.shard.execution.gpu_memory import check_weights, part_of_memory, trial_blocks
from penstock.shard.execution.graphs import StepGraphs, new_pool
from penstock.shard.execution.kept_memory import KeptMemory
from penstock.shard.execution.kv_cache import KvShape, cache_dtype, check_kv_memory, kv_budget, num_blocks
from penstock.shard.execution.masks import Masks
from penstock.shard.execution.memory import States, allocate, copy_blocks, forget
from penstock.shard.execution.model import load_model
from penstock.shard.execution.model_name import Naming, numerics, settings_digest
from penstock.shard.execution.prompt_logprobs import PromptLogprobsBatch, RowPromptLogprobs
from penstock.shard.execution.sampler import SamplingBatch
from penstock.shard.execution.slots import Bounds, OrderError, SlotTable
from penstock.shard.execution.step import Facts, RowResult, Step, StepResult, StreamLimits
from penstock.shard.execution.watermark import Watermark
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.model import Hidden
from penstock.shard.models.stage import Stage
from penstock.shard.progress import LoadProgress
from penstock.shard.weights.rank_weights import Progress


@dataclass(frozen=True, slots=True)
class Outputs:
    """Holds what the model computed in a step, and what sampling and prompt logprobs need besides."""

    logits: Tensor | None                # float32 [sampled rows, V] on the rank that answers, None elsewhere
    prompt_logprobs: list[Tensor]        # as `prompt_logprobs.launch` returns them
    sampling_batch: SamplingBatch
    prompt_batch: PromptLogprobsBatch
    columns: Mapping[str, Tensor]        # of the two batches, on the device
    drafted: Moment | None = None        # when the draft model ended, if there is one


@dataclass(frozen=True, slots=True)
class Launched:
    """Stands for a step whose work is all on its way. The marks tell when it began, when the draft model and the model
    ended, and when sampling began and ended."""

    step: Step
    sampling_batch: SamplingBatch
    prompt_batch: PromptLogprobsBatch
    download: Download
    num_prompt_tensors: int
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
        self._config = config
        self._group = group
        self.stages = Stages(group, config.pipeline_parallel_size)
        kv_dtype = cache_dtype(config.kv_cache_dtype)
        check_weights(config, gpu.free_memory() if gpu.is_used() else part_of_memory(group))
        stage = Stage(self.stages.number, self.stages.count)
        naming = Naming(config, group)   # reads all files, beside the load
        self.model = load_model(config, self.stages.group, progress, stage)
        self.adapters = AdapterStore(self.model.adaptable, partial(gpu.choose, config))
        layout = self.model.facts.layout
        if config.draft_model is not None:
            draft = replace(config, model=config.draft_model, quantize=None, rope_scaling=None, model_impl="auto")
            check_weights(draft, gpu.free_memory() if gpu.is_used() else part_of_memory(group))
        self.drafter = Drafter.load(config, group, self.model.facts, progress)
        draft_bytes = self.drafter.token_bytes if self.drafter else 0
        self.kv_shape = KvShape(
            layout.num_caches, layout.num_kv_heads, layout.head_dim, config.block_size, kv_dtype or self.model.dtype,
            layout.token_bytes + draft_bytes)
        if kv_dtype is not None and not layout.num_caches and self.stages.count == 1:
            raise ModelConfigError(f"{config.model}: --kv-cache-dtype {config.kv_cache_dtype}: the model keeps no keys "
                                   "and values in blocks, so there is nothing that it could be the dtype of")
        self._name = naming.agree(settings_digest(config, self.model), tell)
        self.states = None if layout.state is None else States(layout.state, layout.state_layers)
        self.kept = self._keep_memory()
        self.num_states = self._least_of_all(self._num_states())
        if gpu.is_used() and config.kv_memory is None:
            self.allocate(trial_blocks(self.kv_shape, config, self.model.facts.context_length))
        else:
            self.allocate(self._least_of_all(self._num_blocks()))
        self._device = Device(dispatch.device())
        self._watermark = Watermark(config.watermark_gamma, config.watermark_delta)
        self._slots: SlotTable | None = None
        self.graphs: StepGraphs | None = None  # captured once the KV memory has its size

    def allocate(self, num_blocks: int) -> None:
        """Replace the KV memory by one of so many blocks, and of one more that no order names: the rows that pad a
        captured step write there. So they do in one more state."""
        facts = self.model.facts
        self.caches: Sequence[LayerMemory] = []  # what was before must go first
        self.bounds = Bounds(self._config.block_size, num_blocks, facts.context_length, facts.vocab_size,
                             self.num_states or None, self.drafter.context_length if self.drafter else 0)
        if self.drafter is not None:
            self.drafter.allocate(num_blocks + 1)
        self.caches = self._allocate(num_blocks + 1, self.kept)

    def _allocate(self, num_blocks: int, kept: KeptMemory | None = None) -> Sequence[LayerMemory]:
        return allocate(self.model.facts.layout, self.kv_shape, num_blocks, self.num_states + 1, kept)

    def new_graphs(self) -> list[StepGraphs]:
        """Makes room for the steps that are to be captured, of the model and of the draft model."""
        own = StepGraphs.of(self.model, self.caches, self.bounds, self._config)
        return [own, *([self.drafter.new_graphs(self._config)] if self.drafter else [])]

    def capture(self, progress: LoadProgress | None = None) -> None:
        """Capture steps over the KV memory as it is now, which is then to stay."""
        pool = new_pool(dispatch.device())
        self.graphs, *of_drafter = self.new_graphs()
        self.graphs.capture(progress, pool)
        for graphs in of_drafter:        # whose results are read before the model's graphs are replayed
            graphs.capture(progress, pool)
            assert self.drafter is not None
            self.drafter.graphs = graphs

    @contextmanager
    def aside(self, num_blocks: int) -> Iterator[None]:
        """Lets steps run in a little memory of their own while the block runs: those as they are, for captured ones
        have the memory that they were captured with."""
        own = self.caches, self.bounds, self.graphs
        self.caches, self.bounds = self._allocate(num_blocks), replace(self.bounds, num_blocks=num_blocks)
        self.graphs = None
        try:
            with self.drafter.aside(num_blocks) if self.drafter else nullcontext():
                yield
        finally:
            self.caches, self.bounds, self.graphs = own

    @property
    def numerics(self) -> str:
        """Names what decides every bit of an answer, apart from the model."""
        return numerics(self.model, self._kv_dtype, self.stages.group.world_size)

    @property
    def _dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def _kv_dtype(self) -> str:
        return self._config.kv_cache_dtype or self._dtype

    def _keep_memory(self) -> KeptMemory | None:
        """Returns the memory that outlives this shard, if it was given a file for it; a GPU's ends with its process."""
        if self._config.memory_fd is None or gpu.is_used() or not self.model.facts.layout.num_caches:
            return None
        layout = (self.numerics, *self._name, str(self.kv_shape), self._group.rank, self._group.world_size,
                  self.stages.count)
        return KeptMemory(self._config.memory_fd, repr(layout))

    def _least_of_all(self, number: int) -> int:
        """Returns the least that a rank of several stages has of something, for they have different layers: what others
        have more would stay unused. One with memory that it must leave as it is has as much as before."""
        if self.stages.count == 1:
            return number
        least = int(self._group.all_gather(torch.tensor([number])).min())
        return number if self.kept and self.kept.found else least

    def _num_blocks(self) -> int:
        found = self.kept.found if self.kept else None
        if found is not None and found.is_whole:
            return found.num_blocks
        if found is None and self._config.kv_memory is not None and not gpu.is_used():
            check_kv_memory(self._config.kv_memory, self._group.num_local)
        others = self.num_states * self.states.num_bytes if self.states else 0
        if self._config.kv_memory is None:
            others += self._config.adapter_memory
        return num_blocks(self.kv_shape, self._config.kv_memory, self.model.facts.context_length,
                          self._group.num_local, found.first_blocks if found else None, others)

    def _num_states(self) -> int:
        """Returns how many sequences can run at once because of their states; 0 if they have none."""
        if self.states is None:
            return 0
        if self.kept and self.kept.found and self.kept.found.num_states:
            return self.kept.found.num_states
        memory = gpu.free_memory() if gpu.is_used() and self._config.kv_memory is None else kv_budget(
            self.kv_shape, self._config.kv_memory, self.model.facts.context_length, self._group.num_local)
        return self.states.number(memory, self._config.max_step_rows)

    def facts(self, step_tokens: int, keeps_bits: bool = True) -> Facts:
        """Returns what the router must know, and declares the KV memory in use; both arguments are measured by others.
        """
        header = self.kept.seal(self.bounds.num_blocks, step_tokens, self.num_states) if self.kept else None
        return Facts(
            model_id=self._config.model_id or str(self._config.model),
            dtype=self._dtype,
            kv_dtype=self._kv_dtype,
            block_size=self.bounds.block_size,
            num_blocks=self.bounds.num_blocks,
            vocab_size=self.bounds.vocab_size,
            eos_token_ids=self.model.facts.eos_token_ids,
            context_length=self.bounds.context_length,
            rank=self._group.rank,
            world_size=self._group.world_size,
            numerics=self.numerics,
            weights_digest=self._name.weights,
            settings_digest=self._name.settings,
            step_tokens=step_tokens,
            memory_id=header.id if header else secrets.token_hex(8),
            first_blocks=header.first_blocks if header else self.bounds.num_blocks,
            num_states=self.num_states,
            implementation=self.model.facts.implementation,
            keeps_bits=keeps_bits,
            takes_adapters=self.adapters.takes_adapters,
            draft_context=self.bounds.draft_context,
            group=self._config.group,
            shards_here=self._config.shards_here,
            num_stages=self.stages.count,
            answering_rank=self.stages.answering_rank)

    def open(self, limits: StreamLimits) -> None:
        """Begin with empty slots."""
        self.stages.catch_up()
        self.adapters.begin(limits.epoch)
        self._slots = SlotTable(limits, self.bounds, self._device, self.adapters)
        if self.drafter is not None:
            self.drafter.open(limits.max_slots)
        self._forget_all()

    def close(self) -> None:
        """Forget all slots."""
        self.stages.catch_up()
        self._slots = None
        self._forget_all()

    def _forget_all(self) -> None:
        forget(self.caches, range(self.num_states + 1))

    def execute(self, step: Step, late_masks: Callable[[], Masks] = dict) -> StepResult:
        """Launch a step and wait for its result. No rank owes another anything then."""
        result = self.finish(self.launch(step, late_masks))
        self.stages.catch_up()
        return result

    def launch(self, step: Step, late_masks: Callable[[], Masks] = dict) -> Launched:
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
        sampled = self._launch_sampling(outputs, masks)
        marks = begin, outputs.drafted or begin, end, sampling, self._device.mark()
        download = self._device.download([*outputs.prompt_logprobs, *sampled])
        return Launched(
            step, outputs.sampling_batch, outputs.prompt_batch, download, len(outputs.prompt_logprobs), marks)

    def finish(self, launched: Launched) -> StepResult:
        """Wait for a step's result. Steps are finished in the order of their launches, on any thread."""
        tensors = launched.download.wait()
        number = launched.num_prompt_tensors
        sampled = sampler.read(launched.sampling_batch, tensors[number:])
        of_prompts = prompt_logprobs.read(launched.prompt_batch, tensors[:number])
        begin, drafted, end, sampling_begin, sampling_end = launched.marks
        return StepResult(
            launched.step.step_id, _join(launched.step, sampled, of_prompts), nanoseconds(drafted, end),
            nanoseconds(sampling_begin, sampling_end), nanoseconds(begin, drafted))

    @torch.inference_mode()
    def forward(self, step: Step) -> Outputs:
        """Take the step in and run the model, behind the draft model if there is one."""
        slots = self._open_slots()
        slots.apply(step)
        forget(self.caches, step.cleared_slots)
        if step.block_copies:
            copy_blocks([*self.caches, *(self.drafter.caches if self.drafter else ())], step.block_copies)
        step, drafted = self._draft(step, slots)
        sampled = [row for row in step.rows if row.is_sampled]
        sampling_batch = sampler.prepare(sampled, slots, answers=self.stages.answers)
        prompt_batch = prompt_logprobs.prepare(step.rows, slots)
        has_adapters = any(slots[row.slot].adapter for row in step.rows)
        padding = self.graphs.padding_of(step.rows) if self.graphs and not has_adapters else None
        if self.stages.is_behind and any(row.from_last_sample for row in step.rows):
            self.stages.catch_up()
        inputs = batch.build(step.rows, slots, {**sampling_batch.columns, **prompt_batch.columns}, padding)
        if self._config.die_on_token is not None and self._config.die_on_token in inputs.input_ids:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.graphs and padding and padding.is_decode:
            logits = self.graphs.decode(inputs.input_ids, inputs.metadata, padding, len(step.rows))
            return Outputs(logits, [], sampling_batch, prompt_batch, inputs.columns, drafted)
        hidden = self._run_blocks(inputs, padding) if self.stages.count == 1 else self._run_stage(inputs)
        if not self.stages.is_last:
            return Outputs(None, [], sampling_batch, prompt_batch, inputs.columns)
        logits = self.model.logits(hidden, inputs.output_rows)
        of_prompts = prompt_logprobs.launch(prompt_batch, inputs, partial(self.model.logits, hidden))
        return Outputs(logits, of_prompts, sampling_batch, prompt_batch, inputs.columns, drafted)

    def _run_blocks(self, inputs: StepInputs, padding: Padding | None) -> Hidden:
        if self.graphs and padding:
            return self.graphs.forward(inputs.input_ids, inputs.metadata, padding)
        return self.model.forward(inputs.input_ids, inputs.metadata, self.caches)

    def _run_stage(self, inputs: StepInputs) -> Hidden:
        """Run this stage's blocks on what the stage before made of the step, and hand the result on to the next."""
        assert isinstance(self.model, Decoder), "no other model has stages"
        before = None
        if not self.stages.is_first:
            x, delta = self.stages.receive((2, len(inputs.input_ids), self.model.config.hidden_size), self.model.dtype)
            before = x, delta
        hidden = self.model.forward(inputs.input_ids, inputs.metadata, self.caches, before)
        if not self.stages.is_last:
            self.stages.hand_on(torch.stack([hidden.x, hidden.delta]))
        return hidden

    def _draft(self, step: Step, slots: SlotTable) -> tuple[Step, Moment | None]:
        """Returns the step with the draft model's proposals as drafts, and a mark behind its work."""
        if self.drafter is None:
            return step, None
        return self.drafter.run(step, slots), self._device.mark()

    @torch.inference_mode()
    def _launch_sampling(self, outputs: Outputs, masks: Masks) -> list[Tensor]:
        return sampler.launch(
            outputs.sampling_batch, outputs.columns, outputs.logits, self._open_slots(), self.stages, self._watermark,
            masks)

    def _open_slots(self) -> SlotTable:
        if self._slots is None:
            raise OrderError("a step came before stream_limits")
        return self._slots


def _join(
    step: Step, sampled: Mapping[int, RowResult], of_prompts: Mapping[int, RowPromptLogprobs]
) -> tuple[RowResult, ...]:
    """Returns the results of the rows that have a sampled token or prompt logprobs, in the step's order.

    `sampled` and `of_prompts` are by slot.
    """
    results = dict(sampled)
    for slot, own in of_prompts.items():
        result = results.get(slot, RowResult(slot, (), ()))
        results[slot] = replace(result, prompt_logprobs=own.logprobs, prompt_top_logprobs=own.top_logprobs)
    return tuple(results[row.slot] for row in step.rows if row.slot in results)
