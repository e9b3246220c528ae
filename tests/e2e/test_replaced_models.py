"""A checkpoint that is replaced by another one while a server runs on it, which then loses a shard."""

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from penstock.shard.weights.checkpoint import Checkpoint
from tests.e2e.client import many_clients, stream
from tests.e2e.server import serve
from tests.paths import DEMO_MODEL

READS_IDS = {"accept": "text/event-stream"}
BODY = {"inputs": "def open(path):", "parameters": {"max_new_tokens": 1200, "do_sample": True, "min_tokens": 1200}}
NUM_STREAMS = 12


async def read(response: aiohttp.ClientResponse, begun: asyncio.Event) -> list[dict[str, Any]]:
    found = []
    async for line in response.content:
        if line.startswith(b"data:"):
            found.append(json.loads(line[5:]))
            begun.set()
    return found


def zeroed(model: Path) -> None:
    """Puts a copy in the file's place that has zeros for one tensor."""
    entry = Checkpoint(model).entries["model.layers.2.mlp.down_proj.weight"]
    copy = Path(shutil.copy(entry.path, entry.path.with_suffix(".new")))
    with copy.open("r+b") as file:
        file.seek(entry.span.offset)
        file.write(bytes(entry.span.num_bytes))
    copy.rename(entry.path)


@pytest.mark.slow
async def test_no_answer_goes_on_with_other_weights(tmp_path: Path) -> None:
    model = Path(shutil.copytree(DEMO_MODEL, tmp_path / "model"))
    async with many_clients() as session:
        with serve(tmp_path, "--num-shard", "2", model=model) as server:
            before = await stream(session, server.url, "import os", max_new_tokens=20)
            url = f"{server.url}/generate_stream"
            begun = [asyncio.Event() for _ in range(NUM_STREAMS)]
            responses = [await session.post(url, json=BODY, headers=READS_IDS if number % 2 else {})
                         for number in range(NUM_STREAMS)]
            reading = [asyncio.create_task(read(response, event))
                       for response, event in zip(responses, begun, strict=True)]
            await asyncio.gather(*(event.wait() for event in begun))
            zeroed(model)
            os.kill(server.shards()[1].pid, signal.SIGKILL)
            for events in await asyncio.gather(*reading):
                assert events[-1]["error"].endswith("the model was replaced by another one, whose weights are others")
            for _ in range(600):         # the router is started again, and answers by the new model
                try:
                    after = await stream(session, server.url, "import os", max_new_tokens=20)
                    break
                except (aiohttp.ClientError, AssertionError):
                    await asyncio.sleep(0.1)
            assert after.logprobs != before.logprobs
            resumed = await session.post(url, json=BODY, headers={
                "last-event-id": responses[1].headers["penstock-answer"]})
            assert resumed.status == 409
