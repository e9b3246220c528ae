"""Batches outlive routers and shards: each line is answered once, as if nothing had happened."""

import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest
from openai.types import Batch

from tests.e2e.server import Server, serve
from tests.faults.system import filled, small_disk
from tests.postgresql import PostgreSQL, only_with_postgresql, running_postgresql

NUM_LINES, NUM_KILLS = 200, 2
SMALL = ("--max-batch-size", "16")
"""So that the lines take their time."""
KINDS: list[dict[str, Any]] = [
    {}, {"temperature": 0.0}, {"temperature": 1.5}, {"seed": 7, "n": 2}, {"logprobs": 2},
    {"guided_regex": "[a-z ]{10,20}"}, {"stop": ["return"]}, {"max_tokens": "many"}]
"""The last is refused, as over HTTP."""


def lines(number: int) -> bytes:
    return b"\n".join(json.dumps({
        "custom_id": f"line-{each}", "method": "POST", "url": "/v1/completions",
        "body": {"prompt": f"def walk{each}(path):\n", "max_tokens": 24, **KINDS[each % len(KINDS)]},
    }).encode() for each in range(number))


class Client:
    """OpenAI's client, which asks again where a router has died."""

    def __init__(self, server: Server) -> None:
        self._client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=20)

    def start(self, content: bytes) -> Batch:
        file = self._client.files.create(file=("lines.jsonl", content), purpose="batch")
        return self._client.batches.create(
            input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")

    def until(self, batch: Batch, is_so: Callable[[Batch], object], seconds: float = 240.0) -> Batch:
        """Returns the batch once it is so."""
        end = time.monotonic() + seconds
        while not is_so(batch):
            assert time.monotonic() < end, batch
            time.sleep(0.02)
            batch = self._client.batches.retrieve(batch.id)
        return batch

    def answers(self, batch: Batch) -> dict[str, Any]:
        """Returns the answers of a batch once it is completed, by their lines; of each all but its times."""
        batch = self.until(batch, lambda batch: batch.status not in ("validating", "in_progress", "finalizing"))
        assert batch.status == "completed", batch
        assert batch.output_file_id
        assert batch.error_file_id
        found = [json.loads(line) for id in (batch.output_file_id, batch.error_file_id)
                 for line in self._client.files.content(id).text.splitlines()]
        answers = {each["custom_id"]: each["response"] for each in found}
        assert len(found) == len(answers)
        return {name: (answer["status_code"], answer["body"].get("choices") or answer["body"]["error"],
                       answer["body"].get("id")) for name, answer in answers.items()}

    def disturbed(self, batch: Batch, *kills: Callable[[], None]) -> dict[str, Any]:
        """Kills processes at even distances, and returns the answers."""
        for number, kill in enumerate(kills, 1):
            least = number * NUM_LINES // (len(kills) + 2)
            counts = self.until(batch, lambda batch, least=least: batch.request_counts.completed >= least)  # type: ignore[misc]
            assert counts.status == "in_progress", "it was too quick to be disturbed"
            kill()
        return self.answers(batch)


def kill_router(server: Server, role: str = "alone") -> None:
    def of_role(process: psutil.Process) -> bool:
        return f'"role":"{role}"' in " ".join(process.cmdline())

    next(process for process in server.children("router") if of_role(process)).kill()


@pytest.fixture
def postgresql() -> Iterator[PostgreSQL]:
    with running_postgresql() as database:
        yield database


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_routers_and_shards_die_amid_a_batch(tmp_path: Path) -> None:
    with serve(tmp_path, "--num-shard", "2", *SMALL, "--data-dir", str(tmp_path / "data")) as server:
        client = Client(server)
        undisturbed = client.answers(client.start(lines(NUM_LINES)))
        assert undisturbed.keys() == {f"line-{number}" for number in range(NUM_LINES)}
        kills = [lambda: kill_router(server), lambda: server.shards()[1].kill()] * NUM_KILLS
        assert client.disturbed(client.start(lines(NUM_LINES)), *kills) == undisturbed


def generate_at_once(server: Server) -> str:
    """Returns an answer of another route."""
    request = urllib.request.Request(f"{server.url}/generate", b'{"inputs": "def walk(path):"}',
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        text: str = json.load(response)["generated_text"]
    return text


def store_failures(server: Server) -> float:
    with urllib.request.urlopen(f"{server.url}/metrics") as response:
        found = re.findall(r"^penstock_store_failures_total(?:{.*})? (\S+)$", response.read().decode(), re.MULTILINE)
    return sum(map(float, found))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_full_disk_holds_a_batch_up_and_nobody_else(tmp_path: Path) -> None:
    """Answers are kept until there is room for them; files are refused meanwhile."""
    folder = tmp_path / "data"
    with small_disk(folder, 8 << 20) as can_mount:
        if not can_mount:
            pytest.skip("nobody here may mount a disk")
        with serve(tmp_path, *SMALL, "--data-dir", str(folder)) as server:
            client = Client(server)
            batch = client.start(lines(NUM_LINES))
            client.until(batch, lambda batch: batch.request_counts.completed >= NUM_LINES // 10)
            with filled(folder):
                end = time.monotonic() + 60
                while not store_failures(server):
                    assert time.monotonic() < end, "nothing was to be stored"
                    time.sleep(0.02)
                with pytest.raises(openai.InternalServerError) as refused:
                    openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0).files.create(
                        file=("lines.jsonl", lines(3000)), purpose="batch")
                assert refused.value.status_code == 507
                assert generate_at_once(server)
            disturbed = client.answers(batch)
            assert client.answers(client.start(lines(NUM_LINES))) == disturbed


@pytest.mark.slow
@pytest.mark.timeout(600)
@only_with_postgresql
@pytest.mark.every_case
def test_a_front_dies_then_the_engine_then_the_server(
    tmp_path: Path, postgresql: PostgreSQL
) -> None:
    """The first process for clients dies, then that with the engine, at last the machine."""
    environment = {"PENSTOCK_DATABASE_URL": postgresql.new_database()}
    with serve(tmp_path, "--api-workers", "2", *SMALL, environment=environment) as first:
        client = Client(first)
        undisturbed = client.answers(client.start(lines(NUM_LINES)))
        batch = client.start(lines(NUM_LINES))
        client.until(batch, lambda batch: batch.request_counts.completed >= NUM_LINES // 10)
        kill_router(first, "front")
        client.until(batch, lambda batch: batch.request_counts.completed >= NUM_LINES // 5)
        kill_router(first, "engine")
        batch = client.until(batch, lambda batch: batch.request_counts.completed >= NUM_LINES // 3)
        assert batch.status == "in_progress"
        processes = [psutil.Process(first.process.pid), *first.processes()]
        try:
            for process in processes:
                process.suspend()
            (tmp_path / "b").mkdir()
            with serve(tmp_path / "b", *SMALL, environment=environment) as second:
                assert Client(second).answers(batch) == undisturbed
        finally:
            for process in processes:
                process.resume()
