"""Measures a real engine under policies of batching, which take turns within every round."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from tqdm import tqdm

from penstock.bench.batching.drive import Drive, Request, Shape
from penstock.bench.batching.runs import Run
from penstock.bench.batching.traffic import make_requests, room_for
from penstock.contract import wire
from penstock.contract.plan import Plan
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.serving.checks import check_row

KV_MEMORY = 1 << 30
STEP_TOKENS = 512                        # of prompts in a step, beside a token of each answer
REQUESTS_PER_SLOT = 6
DELAY = 0.1
"""How many seconds a dynamic batch waits for more requests."""
MOMENT = 0.001


class Engine:
    """Runs steps on this machine's processor, in real time."""

    def __init__(self, executor: Executor, shape: Shape) -> None:
        """Begins anew, with an empty memory, at the time 0."""
        blocks = shape.num_blocks // shape.num_slots
        executor.open(StreamLimits(shape.num_slots, shape.max_step_tokens, blocks, epoch=1))
        self._executor = executor
        self._began_at = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._began_at

    def idle(self) -> None:
        time.sleep(MOMENT)

    def run(self, plan: Plan) -> StepResult:
        return self._executor.execute(wire.decode_plan(wire.encode_plan(plan).plan, plan.step_id, check_row))


def measure(
    model: Path, num_threads: int, policies: Sequence[str], slots: Sequence[int], rounds: int, prompt: int, new: int,
    gap: float,
) -> dict[str, list[Run]]:
    """Returns a run of each policy for each round and number of slots. In a round all have the same requests."""
    config = ShardConfig(model, threads=num_threads, kv_memory=KV_MEMORY)
    dispatch.set_threads(config.num_threads, config.cpus)
    executor = Executor(config, Group())
    bounds = executor.memory.bounds
    found: dict[str, list[Run]] = {policy: [] for policy in policies}
    _run(executor, policies[0], make_requests(2, prompt, new, 0.0, bounds.vocab_size),
         room_for(2, prompt, new, bounds.block_size, STEP_TOKENS))  # what happens once happens here
    with tqdm(total=rounds * len(slots) * len(policies), unit="run") as bar:
        for number in range(rounds):
            first = number % len(policies)
            for num_slots in slots:
                shape = room_for(num_slots, prompt, new, bounds.block_size, STEP_TOKENS)
                requests = make_requests(
                    REQUESTS_PER_SLOT * num_slots, prompt, new, gap, bounds.vocab_size, seed=number)
                for policy in (*policies[first:], *policies[:first]):
                    bar.set_postfix_str(f"{policy}, {num_slots} slots")
                    found[policy].append(_run(executor, policy, requests, shape))
                    bar.update()
    return found


def _run(executor: Executor, policy: str, requests: list[Request], shape: Shape) -> Run:
    bounds = executor.memory.bounds
    if shape.num_blocks > bounds.num_blocks:
        raise ValueError(f"{shape.num_slots} sequences need {shape.num_blocks} blocks of {bounds.block_size} tokens, "
                         f"there are {bounds.num_blocks}")
    machine = Engine(executor, shape)
    drive = Drive(requests, policy, shape, DELAY, machine)
    for _ in drive.steps():
        pass
    seconds = machine.now()
    executor.close()
    return Run(shape.num_slots, len(requests), sum(each.answer for each in requests), seconds,
               fmean(each.first_after for each in drive.answered), fmean(each.ended_after for each in drive.answered),
               drive.waste.of_blocks, drive.waste.of_contiguous)
