"""Recorded answers are asked for again, and compared."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.bench.replay.command import main
from penstock.bench.replay.recorded import Recorded, Unusable, read
from penstock.router.generation.around import Around
from penstock.router.journal.form import Form
from penstock.router.journal.journal import Journal
from penstock.router.metrics.metrics import Metrics
from penstock.system.receipt_signature import Signer
from tests.router.api.conftest import Server, Start, starting
from tests.router.api.resuming import SeededFleet
from tests.signing_keys import make_key

BODIES: Sequence[tuple[str, dict[str, Any]]] = (
    ("/generate", {"inputs": "a", "parameters": {"max_new_tokens": 5, "do_sample": True}}),
    ("/generate", {"inputs": "b", "parameters": {"max_new_tokens": 5}}),
    ("/", {"inputs": "c", "parameters": {"max_new_tokens": 4, "do_sample": True}}),
    ("/generate_stream", {"inputs": "d", "parameters": {"max_new_tokens": 6, "do_sample": True}}),
    ("/v1/completions", {"model": "demo", "prompt": "e", "n": 3, "max_tokens": 5}),
    ("/v1/completions", {"model": "demo", "prompt": "f", "max_tokens": 5, "stream": True}))


class Lines:
    """A place for the records of a journal."""

    is_away = False

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    async def write(self, records: Sequence[Any]) -> None:
        self.lines += [record.line for record in records]

    async def close(self) -> None:
        pass


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with starting() as start:
        yield start


async def receipts(server: Server) -> list[dict[str, Any]]:
    found = []
    for path, body in BODIES:
        text = await (await server.post(path, {**body, "receipt": True})).text()
        content = text.rpartition("event: receipt\ndata: ")[2].partition("\n")[0] if "event:" in text else text
        answer = json.loads(content)
        found.append((answer[0] if isinstance(answer, list) else answer)["receipt"])
    return found


async def replay(server: Server, file: Path, *options: str) -> Result:
    url = str(server.client.make_url("")).rstrip("/")
    return await asyncio.to_thread(CliRunner().invoke, main, [str(file), "--url", url, *options])


def write(file: Path, records: Sequence[object]) -> Path:
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return file


async def test_answers_are_equal(start: Start, tmp_path: Path) -> None:
    server = await start(make_fleet=SeededFleet)
    file = write(tmp_path / "receipts.jsonl", await receipts(server))
    result = await replay(server, file, "--verify")
    assert result.exit_code == 0, result.output
    assert "6 of 6 answers are equal" in result.stdout


async def test_a_changed_answer_is_found(start: Start, tmp_path: Path) -> None:
    server = await start(make_fleet=SeededFleet)
    found = await receipts(server)
    found[4]["answers"][1]["sha256"] = "0" * 64
    found[0]["model"]["digest"] = "another/model"
    result = await replay(server, write(tmp_path / "receipts.jsonl", found), "--verify")
    assert result.exit_code == 1
    assert f"{found[4]['id']}: other tokens: 1 of 3 answers" in result.stdout
    assert f"{found[0]['id']}: the model is another one" in result.stdout
    assert "4 of 6 answers are equal" in result.stdout


async def test_a_request_that_is_refused_is_a_difference(start: Start, tmp_path: Path) -> None:
    server = await start(make_fleet=SeededFleet)
    [receipt, *_] = await receipts(server)
    receipt["request"]["body"] = '{"inputs": "another"}'
    result = await replay(server, write(tmp_path / "receipt.json", [receipt]), "--verify")
    assert result.exit_code == 1
    assert "names an answer to another request" in result.stdout


async def test_an_answer_is_printed(start: Start, tmp_path: Path) -> None:
    """A whole answer with its receipt will do as a file."""
    server = await start(make_fleet=SeededFleet)
    answer = await (await server.post("/generate", {**BODIES[0][1], "receipt": True})).json()
    result = await replay(server, write(tmp_path / "answer.json", [answer]))
    assert result.exit_code == 0, result.output
    again = json.loads(result.stdout)
    assert again["generated_text"] == answer["generated_text"]
    assert "1 of 1 answers are equal" in result.stderr


async def test_the_log_of_requests_is_asked_again(start: Start, tmp_path: Path) -> None:
    """At ten times the speed; a request that failed has no answer."""
    place = Lines()

    def around(metrics: Metrics) -> Around:
        return Around(journal=Journal(place, Form("texts"), metrics.journal))

    server = await start(make_fleet=SeededFleet, make_around=around)
    for path, body in BODIES:
        await (await server.post(path, body)).read()
    await server.post("/generate", {"inputs": ""})
    while len(place.lines) < 7:
        await asyncio.sleep(0.01)
    file = tmp_path / "requests.jsonl"
    file.write_bytes(b"\n".join(place.lines))
    result = await replay(server, file, "--verify", "--speed", "10")
    assert result.exit_code == 0, result.output
    assert "6 of 6 answers are equal" in result.stdout
    assert "was answered with 422" in result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[-2:]] == ["then", "now"]


async def test_signatures_are_checked_first(start: Start, tmp_path: Path) -> None:
    signer = Signer.opened(make_key(tmp_path / "key.pem"))
    public = tmp_path / "public.pem"
    public.write_text(signer.public_key)
    server = await start(make_fleet=SeededFleet, make_around=lambda metrics: Around(signer=signer))
    found = await receipts(server)
    result = await replay(server, write(tmp_path / "receipts.jsonl", found), "--verify", "--key", str(public))
    assert result.exit_code == 0, result.output
    found[2]["step_us"] += 1
    result = await replay(server, write(tmp_path / "receipts.jsonl", found), "--verify", "--key", str(public))
    assert result.exit_code == 1
    assert f"{found[2]['id']}: the receipt was altered" in result.stderr


@pytest.mark.parametrize(("content", "message"), [
    (b"{}", "the file is no receipt"), (b"[]\n3\nx", "line 1 is no receipt"),
    (b'{"receipt": 3}', "the file is no receipt"),
    (b'{"route": "POST /generate", "status": 200, "id": "a", "generations": []}', "the request a has no text"),
    (b'{"route": "POST /generate", "status": 429, "id": "a"}', "the request a was answered with 429")])
def test_what_is_no_record(content: bytes, message: str) -> None:
    first, *_ = read(content)
    assert isinstance(first, Unusable)
    assert message in str(first)


def test_an_empty_file_has_nothing() -> None:
    assert [*read(b"")] == []
    result = CliRunner().invoke(main, ["-"], input=b"\n")
    assert (result.exit_code, result.stderr) == (1, "Error: there is nothing to ask for\n")


def test_digests_without_texts_can_not_be_asked_again() -> None:
    record = {"route": "POST /generate", "status": 200, "id": "a", "generations": [
        {"answer": "b", "prompts": [{"answers": [{"output_sha256": "c"}]}]}]}
    [found] = read(json.dumps(record).encode())
    assert not isinstance(found, Recorded)
    assert "--request-log-content texts" in str(found)
