"""Runs a shard: meets the group, loads, measures, listens."""

import asyncio
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from penstock.contract.facts import Facts
from penstock.contract.shard_facts import ShardFacts
from penstock.kernels import dispatch
from penstock.shard import process
from penstock.shard.communication import distributed
from penstock.shard.communication.network_links import Network
from penstock.shard.config import ShardConfig, physical_cores
from penstock.shard.devices import energy, gpu, machine
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.facts import describe
from penstock.shard.execution.kept_memory import KeptMemory
from penstock.shard.execution.kv_cache import KvMemoryError
from penstock.shard.models.model import NATIVE
from penstock.shard.process import ParentWatch
from penstock.shard.progress import LoadProgress
from penstock.shard.serving.agreement import Agreement
from penstock.shard.serving.resting import rest
from penstock.shard.serving.server import serve
from penstock.shard.serving.worker import StepObserver, Worker
from penstock.shard.startup import bit_trial, memory_ceiling, politely
from penstock.shard.startup.load import load
from penstock.shard.startup.measure import MAX_TOKENS, settle_step_tokens
from penstock.shard.startup.phases import Phases
from penstock.system.heap import freeze_heap

log = logging.getLogger(__name__)

GROUP_TIMEOUT = 24 * 3600.0
"""Seconds that a rank waits for another. Long, for it may wait for a router; a rank that dies is noticed at once, and
one that hangs is the launcher's to find."""


SWITCH_SECONDS = 5e-5
"""After which the thread that runs the steps gets the interpreter back from the one that writes results: Python's own
5 ms are as long as a step, and it asks between any two ops."""
PLENTY = 2
"""How many times as much memory must be available as is reserved, that a shard serves meanwhile: a gibibyte takes a
quarter of a second."""


def run(config: ShardConfig, progress: LoadProgress, watch: ParentWatch | None, phases: Phases) -> None:
    """Serve a shard, between its rests, until SIGTERM or SIGINT. Raises ValueError or OSError for what is wrong with
    settings or checkpoint."""
    config.check()
    gpu.choose(config)
    if config.may_rest and gpu.is_used():
        config = replace(config, may_rest=False)
        log.warning("--keep-weights has no effect: a model that is unloaded leaves nothing in the memory of a GPU")
    sys.setswitchinterval(SWITCH_SECONDS)
    progress.tell()
    group = _meet(config)
    # Where stages run different steps at once, orders are agreed on beside the steps.
    has_stages = config.pipeline_parallel_size > 1
    agreeing = group.again() if has_stages else group
    phases.end("meeting")
    # One thread measures and runs the steps, and loads: every thread that computes has a pool of helpers of its own.
    steps = ThreadPoolExecutor(1, "steps", initializer=_begin_thread, initargs=(config,))
    loading = partial(load, config, group, progress)
    is_polite = config.gives_way and not gpu.is_used()
    executor = politely.call(loading, partial(_begin_thread, config)) if is_polite else steps.submit(loading).result()
    phases.end("model")
    if config.rank == 0:
        log.info(machine.describe(len(physical_cores())))
    shard = _prepare(config, executor, steps, group, progress, phases)
    results = ThreadPoolExecutor(1, "results", gpu.choose, (config,)) if gpu.is_used() else None
    orders = ThreadPoolExecutor(1, "orders") if has_stages else None
    meter = energy.meter_of(config)
    with _tracing(config) as observer:
        while True:
            worker = Worker(
                executor, Agreement(agreeing), steps, partial(process.leave, 1, config.socket_path, watch), observer,
                results, orders, meter)
            does_rest = asyncio.run(serve(config, shard, worker, partial(_tell_ready, progress, phases), watch,
                                          executor.adapters))
            if not does_rest:
                return
            if config.socket_path is not None:
                config.socket_path.unlink(missing_ok=True)
            steps.submit(executor.release).result()
            if not rest(progress.tell_resting):
                return
            phases = Phases(has_rested=True)
            steps.submit(executor.occupy).result()
            shard = _prepare(config, executor, steps, group, progress, phases, shard.facts)


def _prepare(
    config: ShardConfig, executor: Executor, steps: ThreadPoolExecutor, group: distributed.Group,
    progress: LoadProgress, phases: Phases, before: Facts | None = None,
) -> ShardFacts:
    """Readies an executor for requests; returns the facts for the router. What was measured and tried `before` a rest
    is known."""
    kept = executor.memory.kept
    reserve_at_start(kept, progress, group.num_local)
    phases.end("KV memory")
    if before is not None:
        step_tokens, keeps_bits = before.step_tokens, before.keeps_bits
    else:
        step_tokens = steps.submit(_measure, config, executor, group).result()
        is_native = executor.model.facts.implementation == NATIVE
        keeps_bits = is_native or steps.submit(bit_trial.keeps_bits, executor, group).result()
    shard = describe(executor, step_tokens, keeps_bits)
    freeze_heap()
    phases.end("first steps")
    facts = shard.facts
    log.info("kernels %s, dtype %s, %d blocks of %d tokens, %d threads, %d prompt tokens a step, numerics %s; %s; %s",
             dispatch.path(), facts.dtype, facts.num_blocks, facts.block_size, _threads(config)[0],
             facts.step_tokens, facts.numerics, batches(config, facts.keeps_bits), _equality(executor))
    if kept and not kept.is_reserved:
        kept.reserve_in_idle_time()
    return shard


def reserve_at_start(kept: KeptMemory | None, progress: LoadProgress, world_size: int) -> None:
    """Has the system give the KV memory before a shard serves: a page that can't be had is found then, and kills nobody
    later. It does so for a shard that takes nobody's place, unless there is plenty for all shards; one that takes
    another's has sequences waiting, and does not wait.

    Raises KvMemoryError if the system refuses it.
    """
    if kept is None or kept.found is not None or machine.available_memory() >= PLENTY * world_size * kept.num_bytes:
        return
    try:
        kept.reserve(progress.tell)
    except OSError as error:
        raise KvMemoryError(
            f"the system refuses the memory of keys and values, though it seemed to be available ({error.strerror}): "
            "set --kv-memory lower, or end what else uses memory") from error


def _meet(config: ShardConfig) -> distributed.Group:
    """Returns this rank's end of its group, once all ranks have come."""
    if not config.exchanges:
        return distributed.connect(config.rendezvous, config.rank, config.world_size, GROUP_TIMEOUT)
    network = Network(config.exchanges, config.generation, config.num_local, config.shard_tls)
    return distributed.connect_across(
        config.rendezvous, network, config.rank, config.world_size, GROUP_TIMEOUT, config.allow_clear_exchange)


def _measure(config: ShardConfig, executor: Executor, group: distributed.Group) -> int:
    """Returns the step tokens, and announces how much memory this shard may come to use. A shard that takes the place
    of another announces nothing new, nor does one whose memory is a GPU's."""
    memory = executor.memory
    most = min(MAX_TOKENS, config.max_step_tokens) if gpu.is_used() else MAX_TOKENS
    settle = partial(settle_step_tokens, executor, group, most)
    if gpu.is_used() or (memory.kept and memory.kept.found):
        return settle()
    kv = max(sum(layer.data.nbytes for layer in memory.caches),  # what comes with each sequence has the same room
             memory.bounds.num_blocks * memory.kv_shape.block_bytes)
    step_tokens, found = memory_ceiling.measured(
        settle, kv, config.max_step_tokens, config.max_step_rows * memory.bounds.vocab_size, config.adapter_memory)
    if found is not None:
        log.info("%s", found)
        is_kv_reserved = memory.kept is not None and memory.kept.is_reserved
        if excess := found.excess(machine.available_memory(), group.num_local, is_kv_reserved):
            log.warning("%s", excess)
    return step_tokens


def _tell_ready(progress: LoadProgress, phases: Phases) -> None:
    progress.tell_ready()
    phases.end("server")
    log.info("ready in %s", phases)


def _threads(config: ShardConfig) -> tuple[int, tuple[int, ...]]:
    """Returns how many threads run the steps, and on which processors they stay."""
    return (config.threads or 1, ()) if gpu.is_used() else (config.num_threads, config.cpus)


def _begin_thread(config: ShardConfig) -> None:
    gpu.choose(config)
    dispatch.set_threads(*_threads(config))


def batches(config: ShardConfig, keeps_bits: bool = True) -> str:
    """Says in words whether answers depend on what is computed beside them."""
    if not keeps_bits:
        return "answers may change with the batch, as a trial has shown of this model"
    if not dispatch.is_deterministic():
        return "answers may change with the batch, which --deterministic prevents"
    asked = ", with and without --deterministic" if config.deterministic and not gpu.is_used() else ""
    return f"no answer changes with the batch{asked}"


def _equality(executor: Executor) -> str:
    if executor.model.facts.implementation != NATIVE:
        return "it runs on one shard alone"
    if executor.model.inequality:
        return f"another number of shards gives other bits, for {executor.model.inequality}"
    return "any number of shards that divides 8 and has as many heads on each gives the same bits"


@contextmanager
def _tracing(config: ShardConfig) -> Iterator[StepObserver | None]:
    """Sends spans of steps while the block runs, if they are wanted."""
    if config.otlp_endpoint is None:
        yield None
        return
    from penstock.shard.serving.tracing import StepTracing  # which imports OpenTelemetry
    from penstock.telemetry.export import Export

    export = Export(config.otlp_endpoint, config.otlp_service_name, f"shard-{config.rank}")
    try:
        yield StepTracing(export.provider, config.rank)
    finally:
        export.close()
