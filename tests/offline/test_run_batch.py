"""`penstock run-batch`: files of requests and their answers, also if it is killed at any moment."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from tests.paths import DEMO_MODEL

pytestmark = pytest.mark.slow

NUMBER = 120


def request(number: int) -> dict[str, Any]:
    """A request, sampled without a seed, of one of both routes; every tenth is refused."""
    body: dict[str, Any] = {"max_tokens": 60 + number % 7, "ignore_eos": True}
    if number % 10 == 9:
        body["temperature"] = -1
    if number % 2:
        url, body["prompt"] = "/v1/completions", f"def function_{number}("
    else:
        url, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": f"What is {number}?"}]
    return {"custom_id": f"line-{number}", "method": "POST", "url": url, "body": body}


LINES = [json.dumps(request(number)) for number in range(NUMBER)]
CONTENT = "\n".join([*LINES, "no JSON", LINES[0]]) + "\n"


def command(source: object, target: object, *flags: str) -> list[str]:
    return [str(Path(sys.executable).with_name("penstock")), "run-batch", str(DEMO_MODEL), "-i", str(source), "-o",
            str(target), "--threads", "1", "--kv-memory", "16MiB", "--max-batch-size", "8", *flags]


def answered(*arguments: Any, folder: Path) -> str:
    """Runs it to the end, and returns what it has told."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False,
                          env={**os.environ, "TMPDIR": str(folder)})
    assert done.returncode == 0, done.stderr
    return done.stderr


@contextmanager
def running(*arguments: Any, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs it meanwhile."""
    with subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "TMPDIR": str(folder)}) as process:
        try:
            yield process
        finally:
            process.kill()


def num_lines(target: Path) -> int:
    return target.read_bytes().count(b"\n") if target.exists() else 0


def wait_for_lines(target: Path, number: int, process: subprocess.Popen[str]) -> None:
    while num_lines(target) < number:
        assert process.poll() is None
        time.sleep(0.005)


def contents(text: str) -> list[tuple[Any, ...]]:
    """The answers without what is drawn anew or tells the time."""
    found = []
    for line in map(json.loads, text.splitlines()):
        body = (line["response"] or {"body": {}})["body"]
        found.append((line["custom_id"], json.dumps(line["error"]), json.dumps(body.get("error")),
                      json.dumps(body.get("choices"))))
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """The answers of a run in order."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "in.jsonl").write_text(CONTENT)
    told = answered(folder / "in.jsonl", folder / "out.jsonl", "--in-order", folder=folder)
    assert re.search(r"\d+%.*\d/122 \[\d\d:\d\d<\d\d:\d\d, .*\d tokens/s", told), told
    assert f"108 lines were answered, 14 have an error, 0 were in {folder}/out.jsonl already" in told
    return contents((folder / "out.jsonl").read_text())


def test_answers_in_order_with_errors_of_their_own(undisturbed: list[tuple[Any, ...]]) -> None:
    assert [custom_id for custom_id, *_ in undisturbed] == [*(f"line-{number}" for number in range(NUMBER)), None, None]
    assert [number for number, (_, _, error, _) in enumerate(undisturbed) if error != "null"] == [*range(9, NUMBER, 10)]
    assert "line 121: it can't be read" in undisturbed[-2][1]
    assert "line 122: `custom_id` must be another one in each line" in undisturbed[-1][1]


@pytest.mark.parametrize("flags", [
    pytest.param((), id="as they end", marks=pytest.mark.every_case), pytest.param(("--in-order",), id="in order")])
def test_it_goes_on_when_it_is_killed(
    tmp_path: Path, flags: tuple[str, ...], undisturbed: list[tuple[Any, ...]]
) -> None:
    source, target, chance = tmp_path / "in.jsonl", tmp_path / "out.jsonl", Random(len(flags))
    source.write_text(CONTENT)
    folder = tmp_path / "t"  # short, for there are sockets in it
    folder.mkdir()
    for wanted, number in ((1, signal.SIGKILL), (40, signal.SIGINT), (80, signal.SIGKILL)):
        with running(source, target, *flags, folder=folder) as process:
            wait_for_lines(target, wanted, process)
            process.send_signal(number)
            process.wait()
        num_known = num_lines(target)
        with target.open("ab") as file:  # as if it had been killed within a line
            file.write(b'{"id":"batch_req_1","custom_id":"line-'[:chance.randrange(38)])
    told = answered(source, target, *flags, folder=folder)
    assert f", {num_known} were in {target} already" in told
    found = contents(target.read_text())
    assert (found if flags else sorted(found, key=str)) == (undisturbed if flags else sorted(undisturbed, key=str))
    assert "0 lines were answered, 0 have an error, 122 were in" in answered(source, target, *flags, folder=folder)
    while os.listdir(folder):  # until the shards of the last that was killed have seen it
        time.sleep(0.02)


def test_answers_do_not_change_when_shards_are_killed(
    tmp_path: Path, undisturbed: list[tuple[Any, ...]]
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(CONTENT)
    folder = tmp_path / "t"  # short, for there are sockets in it
    folder.mkdir()
    with running(source, target, "--in-order", folder=folder) as process:
        for wanted in (10, 60):
            wait_for_lines(target, wanted, process)
            [shard] = [each for each in psutil.Process(process.pid).children() if "penstock.shard" in each.cmdline()]
            shard.kill()
            assert num_lines(target) < NUMBER
        _, told = process.communicate()
    assert process.returncode == 0, told
    assert f"108 lines were answered, 14 have an error, 0 were in {target} already" in told
    assert contents(target.read_text()) == undisturbed


class Files(BaseHTTPRequestHandler):
    """Serves one file, and takes another."""

    taken: bytes = b""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/in" else 404)
        self.end_headers()
        self.wfile.write(("\n".join(LINES[:4])).encode())

    def do_PUT(self) -> None:
        Files.taken = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def files() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_files_at_urls(tmp_path: Path, undisturbed: list[tuple[Any, ...]]) -> None:
    with files() as url:
        answered(f"{url}/in", f"{url}/out", "--in-order", folder=tmp_path)
        assert contents(Files.taken.decode()) == undisturbed[:4]
        done = subprocess.run(command(f"{url}/other", tmp_path / "out"), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "/other can't be read: " in done.stderr
    assert "404" in done.stderr
