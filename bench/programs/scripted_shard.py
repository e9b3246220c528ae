"""A shard without a model, which answers each step at once, or after KERNELS_STEP_SECONDS: what is measured of a server
is then its router.

`python -m penstock.bench.programs.scripted_shard` takes a shard's arguments. Its tokens go round in the vocabulary,
so that text comes of them; or they are those of a script, KERNELS_SCRIPT: a JSON file with the path of a `tokenizer`,
and the `answers` to prompts by what stands last in them, as `by_last` takes them.
"""

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import tokenizers

from penstock.bench.programs.scripted_model import ScriptedModel, by_last
from penstock.contract.plan import Plan
from penstock.contract.wire import decode_plan
from penstock.protos import services, shard_pb2
from penstock.system.signs import Sign

STEP_SECONDS = float(os.environ.get("KERNELS_STEP_SECONDS", "0"))
"""How long a step takes; launchers pass variables of such names on to shards."""
SCRIPT = os.environ.get("KERNELS_SCRIPT")
EOS_ID, BLOCK_SIZE = 2, 16
FIRST_ID, NUM_IDS = 300, 4000            # tokens that most vocabularies have text for


class ScriptedShard:
    """Answers every sampled row with the next token of a circle, or of a script's answer."""

    def __init__(self, facts: shard_pb2.Facts, script: str | None = None) -> None:
        self._facts = facts
        self._script = script

    async def Describe(self, request: shard_pb2.DescribeRequest, context: Any) -> shard_pb2.Facts:
        return self._facts

    async def Health(self, request: shard_pb2.HealthRequest, context: Any) -> shard_pb2.HealthReply:
        return shard_pb2.HealthReply()

    async def Follow(self, request: shard_pb2.FollowRequest, context: Any) -> AsyncIterator[shard_pb2.GroupState]:
        yield shard_pb2.GroupState()
        await asyncio.Event().wait()

    async def Execute(
        self, orders: AsyncIterator[shard_pb2.Order], context: Any
    ) -> AsyncIterator[shard_pb2.StepResult]:
        model = None if self._script is None else read_script(self._script)
        async for order in orders:
            if order.HasField("plan"):
                await asyncio.sleep(STEP_SECONDS)
                yield answer(order.plan) if model is None else say(model, order.plan)


def answer(plan: shard_pb2.Plan) -> shard_pb2.StepResult:
    """Returns the result of a plan whose rows sample one token each, or none."""
    slots = [*plan.continued_slots, *(row.slot for row in plan.rows if row.output == shard_pb2.SAMPLE)]
    return shard_pb2.StepResult(
        step_id=plan.step_id, slots=slots, logprobs=[-0.5] * len(slots), forward_ns=1000,
        token_ids=[FIRST_ID + (37 * slot + plan.step_id) % NUM_IDS for slot in slots])


def read_script(path: str) -> ScriptedModel:
    """Returns the model of a script."""
    script = json.loads(Path(path).read_text())
    tokenizer = tokenizers.Tokenizer.from_file(script["tokenizer"])
    return ScriptedModel(tokenizer, by_last(script["answers"]), EOS_ID, BLOCK_SIZE)


def say(model: ScriptedModel, message: shard_pb2.Plan) -> shard_pb2.StepResult:
    """Returns the result of a plan as a script has it."""
    plan: Plan = decode_plan(message, message.step_id, lambda row: None)
    for row in plan.rows:
        model.read(row)
    sampled = [row for row in plan.rows if row.is_sampled]
    return shard_pb2.StepResult(
        step_id=plan.step_id, slots=[row.slot for row in sampled], logprobs=[-0.5] * len(sampled), forward_ns=1000,
        token_ids=[model.token(row) for row in sampled])


async def serve(config: dict[str, Any], signs_fd: int | None) -> None:
    """Serves until the process ends."""
    facts = shard_pb2.Facts(
        model_id="scripted", dtype="bfloat16", kv_dtype="bfloat16", block_size=BLOCK_SIZE, num_blocks=1 << 16,
        vocab_size=8192, eos_token_ids=[EOS_ID], context_length=1 << 17, rank=0, world_size=1, answers=True,
        numerics="scripted", kv_groups=1, weights_digest="scripted", settings_digest="scripted", step_tokens=4096,
        memory_id=str(os.getpid()), implementation="native", group=config.get("group", ""),
        shards_here=config.get("shards_here", 0))
    server = grpc.aio.server()
    services.serve(server, shard_pb2, ScriptedShard(facts, SCRIPT))
    server.add_insecure_port(config["listen"])
    await server.start()
    if signs_fd is not None:
        os.write(signs_fd, Sign.READY)
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True)
    parser.add_argument("--signs-fd", type=int)
    given = parser.parse_args()
    asyncio.run(serve(given.config, given.signs_fd))


if __name__ == "__main__":
    main()
