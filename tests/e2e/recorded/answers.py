"""Asks a server of the demo model all that is recorded, and compares its answers with the recorded ones."""

import asyncio
import json
import math
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.client import many_clients
from tests.e2e.recorded.requests import ASKS, Ask
from tests.e2e.server import DEMO_MODEL, Server, serve

FILE = Path(__file__).with_name("answers.json")
PATHS = ("avx512_bf16", "avx512", "avx2")
"""The instruction paths of the kernels, each of which is recorded by itself."""
FLAGS = ("--max-batch-prefill-tokens", "256", "--enable-prefill-logprobs", "--max-best-of", "4",
         "--watermark-gamma", "0.4", "--watermark-delta", "4")
"""Those of the server that tests/e2e shares, as far as answers depend on them."""

VARYING = {"created", "system_fingerprint", "prefix_hit_tokens", "cached_tokens"}
"""Fields that tell of the time, of the version, or of what was asked before."""

Answers = dict[str, Any]
"""What was answered, by the names of the requests."""


@contextmanager
def server_on(path: str, folder: Path, num_shard: int = 2) -> Iterator[Server]:
    """Serve the demo model with the kernels of one instruction path, on so many shards. Fails unless these are used."""
    environment = {"KERNELS": "cpu", "KERNELS_PATH": path}
    with serve(folder, *FLAGS, "--num-shard", str(num_shard), environment=environment) as server:
        assert numerics(server).startswith(f"cpu-{path}/")
        yield server


def numerics(server: Server) -> str:
    """Give the name of what decides a server's bits."""
    with urllib.request.urlopen(f"{server.url}/info") as response:
        return str(json.load(response)["numerics"])


async def ask_all(url: str, num_at_once: int = len(ASKS)) -> Answers:
    """Give the answers to all requests, without what varies."""
    turn = asyncio.Semaphore(num_at_once)

    async def ask_in_turn(ask: Ask) -> Any:
        async with turn:
            return without_varying(await answer(session, url, *ask))

    async with many_clients() as session:
        found = await asyncio.gather(*map(ask_in_turn, ASKS.values()))
    return dict(zip(ASKS, found, strict=True))


async def answer(session: aiohttp.ClientSession, url: str, route: str, body: dict[str, Any]) -> Any:
    """Give the JSON of a whole answer, or a list of the JSON of a stream's events. Fails if the request is refused."""
    async with session.post(url + route, json=body) as response:
        text = await response.text()
    assert response.status == 200, text
    if response.content_type == "text/event-stream":
        return in_order([read_event(line[5:].strip()) for line in text.split("\n") if line.startswith("data:")])
    return json.loads(text)


def read_event(data: str) -> Any:
    return data if data == "[DONE]" else json.loads(data)


def in_order(events: list[Any]) -> list[Any]:
    """Put the chunks of each choice together: those of several choices come as the steps fall."""
    return sorted(events, key=choice_number)


def choice_number(event: Any) -> float:
    """Give the index of a chunk's choice; what belongs to no choice comes last."""
    choices = event.get("choices") if isinstance(event, dict) else None
    return choices[0]["index"] if choices else math.inf


def without_varying(value: Any) -> Any:
    """Leave out the fields of JSON that differ from run to run."""
    if isinstance(value, list):
        return [without_varying(item) for item in value]
    if isinstance(value, dict):
        return {key: without_varying(item) for key, item in value.items() if not varies(key, item)}
    return value


def varies(key: str, value: Any) -> bool:
    """Tell whether a field differs from run to run. Ids of answers and calls are texts, those of tokens are numbers; a
    model that was asked for as `tgi` bears the name of its folder."""
    return key in VARYING or (key == "id" and isinstance(value, str)) or value == str(DEMO_MODEL)


def differences(found: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[str]:
    """Describe the first difference of each answer that is not, bit for bit, the recorded one."""
    first = (next(compare(found.get(name), recorded.get(name), name), None) for name in {**recorded, **found})
    return [difference for difference in first if difference is not None]


def compare(found: Any, recorded: Any, where: str) -> Iterator[str]:
    """Describe the differences of two values of JSON; numbers are compared by all their digits."""
    if isinstance(found, dict) and isinstance(recorded, dict):
        for key in {**recorded, **found}:
            yield from compare(found.get(key, "nothing"), recorded.get(key, "nothing"), f"{where}.{key}")
    elif isinstance(found, list) and isinstance(recorded, list):
        for number, pair in enumerate(zip(found, recorded, strict=False)):
            yield from compare(*pair, f"{where}[{number}]")
        if len(found) != len(recorded):
            yield f"{where}: {len(found)} items, {len(recorded)} are recorded"
    elif repr(found) != repr(recorded):
        yield f"{where}: {found!r:.200}, recorded is {recorded!r:.200}"


def read() -> dict[str, Answers]:
    """Give the recorded answers of each instruction path."""
    return dict(json.loads(FILE.read_bytes()))


def write(recorded: Mapping[str, Answers]) -> None:
    """Replace the recorded answers, one on each line."""
    paths = [f"{compact(path)}: {{\n{lines(answers)}\n}}" for path, answers in recorded.items()]
    FILE.write_text("{\n" + ",\n".join(paths) + "\n}\n", encoding="utf-8")


def lines(answers: Answers) -> str:
    return ",\n".join(f"{compact(name)}: {compact(answer)}" for name, answer in answers.items())


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
