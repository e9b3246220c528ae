"""Bad models and environments, through the launcher: a start that can't succeed ends by itself, with one sentence."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import psutil
import pytest
from tokenizers import Tokenizer

from penstock.bench.programs.children import free_port
from tests.e2e import spoilt_models
from tests.e2e.client import events, generate, many_clients
from tests.e2e.server import Server, launcher_command, serve
from tests.paths import DEMO_MODEL

pytestmark = pytest.mark.slow

PATIENCE = 100.0
MOST_MEMORY = 1 << 30
"""Bytes in any process: more than any takes to start, and less than what is asked for here would take."""
MEASURED = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
with open(sys.argv[1], "w") as most:
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=most)
sys.exit(status)
"""
"""Runs a command, and notes the KiB of memory that the largest of its processes took. A process begins with the largest
size of the one that starts it, and that of the tests may be large."""
NOT_A_NUMBER = "the model computed something that is not a number (NaN)"

SPOILT: dict[str, tuple[Callable[[Path], Path], str]] = {
    "layers": (lambda folder: spoilt_models.with_keys(folder, num_hidden_layers=10**9),
               "config.json: num_hidden_layers: expected at most 4096, found 1000000000"),
    "nested": (lambda folder: spoilt_models.with_file(folder, "config.json", "[" * 10**6),
               "config.json cannot be read: its values are nested too deeply"),
    "nested-template": (lambda folder: spoilt_models.with_file(folder, "tokenizer_config.json", "[" * 10**6),
                        "tokenizer_config.json is no JSON: maximum recursion depth exceeded"),
    "nan": (spoilt_models.with_nan_everywhere, "the model computes something that is not a number (NaN): its weights "),
}
"""By what is wrong, how it is made, and what is said. Other such models have their tests where they are refused."""
ENVIRONMENTS = {
    "--kv-memory": (["--kv-memory", "1TiB"], "true", "--kv-memory: 1099511627776 bytes are more than the "),
    "ulimit -n": ([], "ulimit -n 20", "`ulimit -n` allows 20 open files, and 48 are needed for 1 shard, "),
    "ulimit -v": ([], "ulimit -v 1000000", "`ulimit -v` allows each process 1000000 KiB of addresses, and 2097152 are"),
}


def refusal(tmp_path: Path, model: Path, *flags: str, shell: str = "") -> str:
    """What a launcher says that ends by itself: without a traceback, without taking much memory, and with nothing left.
    """
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    log, most = tmp_path / "log", tmp_path / "most"
    command = [sys.executable, "-c", MEASURED, str(most), *launcher_command(model, free_port(), *flags, shell=shell)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                                   env={**os.environ, "TMPDIR": str(temporary)})
    try:
        status = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        raise TimeoutError(f"the launcher still runs:\n{log.read_text()}") from None
    text = log.read_text()
    assert status in (1, 2), text
    assert "Traceback" not in text
    assert int(most.read_text()) << 10 < MOST_MEMORY, "of the launcher, and of all that it has waited for"
    assert not _processes_of(temporary)
    assert not list(temporary.iterdir())
    return text


def _processes_of(temporary: Path) -> list[psutil.Process]:
    """The processes with this folder for temporary files."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(temporary):
                found.append(process)
        except psutil.Error:
            continue  # it has ended, or is another user's
    return found


@pytest.mark.parametrize("name", SPOILT)
def test_a_bad_model_is_refused(tmp_path: Path, name: str) -> None:
    spoil, sentence = SPOILT[name]
    text = refusal(tmp_path, spoil(tmp_path), "--num-shard", "2" if name == "nan" else "1")
    assert text.count(sentence) == 1, text
    assert " ended with exit code " in text


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_the_machine_does_not_have_is_refused(tmp_path: Path, name: str) -> None:
    flags, shell, sentence = ENVIRONMENTS[name]
    assert refusal(tmp_path, DEMO_MODEL, *flags, shell=shell).count(sentence) == 1


def test_a_server_within_its_limits_and_without_a_directory(tmp_path: Path) -> None:
    """Its working directory is gone, also for the processes that are started later."""
    gone = tmp_path / "gone"
    gone.mkdir()
    shell = f"ulimit -n 128 && ulimit -v {4 << 20} && cd {gone} && rmdir {gone}"

    async def answer(server: Server) -> str:
        async with many_clients() as session:
            return (await generate(session, server.url, "def open(path):", max_new_tokens=20)).text

    with serve(tmp_path, shell=shell) as server:
        text = asyncio.run(answer(server))
        server.shards()[0].kill()
        assert asyncio.run(answer(server)) == text
        assert "`ulimit -n` allows 128 open files: about 80 clients at once" in server.log.read_text()
        assert "within the limit of `ulimit -v`" in server.log.read_text()


def test_many_added_tokens_hold_nothing_up(tmp_path: Path) -> None:
    """`serve` sees that SIGTERM ends the server in order."""
    async def digits(server: Server) -> str:
        async with many_clients() as session:
            answer = await generate(session, server.url, "1 2 3", max_new_tokens=8,
                                    grammar={"type": "regex", "value": "[0-9]{3}"})
        return answer.text

    with serve(tmp_path, model=spoilt_models.with_added_tokens(tmp_path)) as server:
        assert asyncio.run(digits(server)).isdigit()
    assert "had requests left" not in server.log.read_text()


@pytest.mark.parametrize("ends", [[-1, 2, 8192, 151645], [8192]])
def test_end_tokens_that_the_model_has_not_harm_nothing(tmp_path: Path, ends: list[int]) -> None:
    """The tokenizer's own end token is one where the files name none that the model has."""
    async def ask(server: Server) -> str:
        async with many_clients() as session:
            least = await generate(session, server.url, "def open(path):", max_new_tokens=3, min_tokens=1)
            assert least.text
            return (await generate(session, server.url, "1 2 3", max_new_tokens=8,
                                   grammar={"type": "regex", "value": "[0-9]{3}"})).text

    model = spoilt_models.with_keys(tmp_path, eos_token_id=ends)
    (model / "generation_config.json").unlink()
    with serve(tmp_path, "--num-shard", "2", model=model) as server:
        shards = {rank: shard.pid for rank, shard in server.shards().items()}
        assert asyncio.run(ask(server)).isdigit()
        assert {rank: shard.pid for rank, shard in server.shards().items()} == shards
        assert server.log.read_text().count("cannot be generated, for the model has 8192 tokens, and so") == 1


def test_a_request_that_yields_nan_is_told_and_others_go_on(tmp_path: Path) -> None:
    model = spoilt_models.with_nan_token(tmp_path)
    poisoned = "Hello" + Tokenizer.from_file(str(model / "tokenizer.json")).decode([spoilt_models.NAN_TOKEN]) + " you"
    with serve(tmp_path, "--num-shard", "2", "--enable-prefill-logprobs", model=model) as server:
        shards = {rank: shard.pid for rank, shard in server.shards().items()}
        asyncio.run(_ask(server, poisoned))
        assert {rank: shard.pid for rank, shard in server.shards().items()} == shards


async def _ask(server: Server, poisoned: str) -> None:
    asked: list[dict[str, object]] = [
        {}, {"do_sample": True, "seed": 1}, {"details": True, "top_n_tokens": 3}, {"repetition_penalty": 1.2},
        {"grammar": {"type": "regex", "value": "[a-z]+"}}, {"details": True, "decoder_input_details": True}]
    prompts = [f"Once upon a time there {verb}" for verb in ("was", "were", "is")]
    async with many_clients() as session:
        undisturbed = [await generate(session, server.url, prompt, max_new_tokens=40) for prompt in prompts]
        others = [asyncio.create_task(generate(session, server.url, prompt, max_new_tokens=40)) for prompt in prompts]
        for parameters in asked:
            status, body = await _post(session, server.url, poisoned, parameters)
            assert (status, body["error_type"]) == (424, "generation"), body
            assert body["error"].endswith(NOT_A_NUMBER)
        [event] = [event async for event in events(session, server.url, poisoned, max_new_tokens=5)]
        assert event["error"].endswith(NOT_A_NUMBER)
        assert await asyncio.gather(*others) == undisturbed


async def _post(
    session: aiohttp.ClientSession, url: str, inputs: str, parameters: dict[str, object]
) -> tuple[int, dict[str, str]]:
    body = {"inputs": inputs, "parameters": {"max_new_tokens": 5, **parameters}}
    async with session.post(f"{url}/generate", json=body) as response:
        reply: dict[str, str] = json.loads(await response.read())
        return response.status, reply
