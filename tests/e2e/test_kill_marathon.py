"""Shards are killed and stopped amid streams: every answer is what it is without that, to the bit."""

import asyncio
import functools
import itertools
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.e2e.asks import Ask, make_asks, struck, undisturbed
from tests.e2e.client import many_clients, scrape
from tests.e2e.prompts import source
from tests.e2e.server import serve
from tests.family_models import make_speaking
from tests.gguf_files.demo import Kind, write_demo
from tests.paths import DEMO_MODEL


@dataclass(frozen=True, slots=True)
class Blow:
    """What befalls a group: a signal to some of its shards."""

    signal: signal.Signals
    ranks: tuple[int, ...]

    async def fall(self, group: Mapping[int, psutil.Process], delay: float) -> None:
        """Falls on a group's shards, by rank, after so many seconds."""
        await asyncio.sleep(delay)
        for rank in self.ranks:
            group[rank].send_signal(self.signal)

    def __str__(self) -> str:
        return f"{self.signal.name} of {' and '.join(map(str, self.ranks))}"


KILLS = [Blow(signal.SIGKILL, (0,)), Blow(signal.SIGKILL, (1,)), Blow(signal.SIGKILL, (0, 1))]
HANGS = [Blow(signal.SIGSTOP, (0,)), Blow(signal.SIGSTOP, (1,))]


async def survive(
    tmp_path: Path, blows: Sequence[Blow], rounds: Sequence[Sequence[Ask]], rng: random.Random, *flags: str,
    model: Path = DEMO_MODEL,
) -> None:
    """Strikes once in a round, at a moment of its own; first all rounds are answered undisturbed."""
    hangs = [blow for blow in blows if blow.signal == signal.SIGSTOP]
    flags = ("--num-shard", "2", *(("--step-timeout", "3") if hangs else ()), *flags)
    with serve(tmp_path, *flags, model=model) as server:
        async with many_clients() as session:
            expected = {id(asks): await undisturbed(session, server.url, asks) for asks in rounds}
            [router] = server.children("router")
            for number, (blow, asks) in enumerate(zip(blows, itertools.cycle(rounds), strict=False), 1):
                wanted, group = expected[id(asks)], server.shards()
                begin, before = time.monotonic(), await scrape(session, server.url)
                num_tokens = max(1, int(rng.uniform(0, 0.5) * sum(len(answer.ids) for answer in wanted)))
                fall = functools.partial(blow.fall, group, rng.uniform(0, 0.02))
                answers, num_hit = await struck(session, server.url, asks, num_tokens, fall)
                after = await scrape(session, server.url)
                num_replays = after["penstock_replays"] - before["penstock_replays"]
                print(f"round {number:2}: {blow} after {num_tokens:4} tokens, {num_hit} streams hit, "
                      f"{num_replays:.0f} replays, {time.monotonic() - begin:.1f} s")
                different = [case for case in zip(asks, answers, wanted, strict=True) if case[1] != case[2]]
                assert not different
                assert num_hit >= len(asks) // 4
                assert num_replays >= 1
                assert after['penstock_kv_blocks{state="used"}'] == 0
                new = server.shards()
                assert new.keys() == group.keys()
                assert not {process.pid for process in new.values()} & {process.pid for process in group.values()}
            assert server.children("router") == [router]
    print("answers: " + ", ".join(f"{number} ended by {reason}" for reason, number in Counter(
        answer.finish_reason for answers in expected.values() for answer in answers).items()))


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(1500)
async def test_many_rounds_of_32_streams(tmp_path: Path, every_case: bool) -> None:
    rng = random.Random(2026)
    blows = [*KILLS * 5, *HANGS * 2, HANGS[0]] if every_case else [*KILLS, *HANGS]
    rng.shuffle(blows)
    rounds = [make_asks(rng, 32, longest=240) for _ in range(len(blows) if every_case else 2)]
    await survive(tmp_path, blows, rounds, rng)


@pytest.mark.every_case
@pytest.mark.slow
async def test_stages(tmp_path: Path, every_case: bool) -> None:
    """A shard of each stage dies, of a model that has states, which begin anew."""
    rng = random.Random(2029)
    blows = [*KILLS, *HANGS] if every_case else KILLS[:2]
    await survive(tmp_path, blows, [make_asks(rng, 16, longest=320)], rng, "--pipeline-parallel-size", "2",
                  model=make_speaking(tmp_path / "model", "qwen3_next"))


@pytest.mark.every_case
@pytest.mark.slow
@pytest.mark.parametrize("quantize", ["int4", "bitsandbytes-nf4"])
async def test_rounded_weights(tmp_path: Path, quantize: str, every_case: bool) -> None:
    """A replay knows nothing of how weights are stored: of the forms here and below one is enough, unless every case
    is asked for."""
    await survive_a_few(tmp_path, every_case, "--quantize", quantize)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [
    Kind.Q4_K, pytest.param(Kind.Q4_0, marks=pytest.mark.every_case)], ids=lambda kind: kind.name)
async def test_gguf_files(tmp_path: Path, kind: Kind, every_case: bool) -> None:
    await survive_a_few(tmp_path, every_case, model=write_demo(tmp_path / "demo.gguf", kind))


@pytest.fixture(params=["awq", pytest.param("smoothquant", marks=pytest.mark.every_case)])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What `penstock quantize` makes: 4 bits in groups, with zeros, or 8 bits, with inputs of 8 bits, too."""
    (tmp_path / "text").write_text(source(random.Random(1), 100))
    zeros = ["--asymmetric"] if request.param == "awq" else []
    subprocess.run([
        sys.executable, "-m", "penstock", "quantize", DEMO_MODEL, tmp_path / "model", "--method", request.param, *zeros,
        "--calibration", tmp_path / "text", "--samples", "4", "--length", "64"], check=True)
    return tmp_path / "model"


@pytest.mark.every_case
@pytest.mark.slow
async def test_quantised_checkpoints(tmp_path: Path, made: Path, every_case: bool) -> None:
    await survive_a_few(tmp_path, every_case, model=made)


@pytest.mark.every_case
@pytest.mark.slow
@pytest.mark.parametrize("family", ["mixtral", "qwen3_next", "granitemoehybrid"])
async def test_families(tmp_path: Path, family: str, every_case: bool) -> None:
    """Experts, Mamba-2, and gated delta nets, which `test_stages` has, too."""
    await survive_a_few(tmp_path, every_case, model=make_speaking(tmp_path / "model", family))


@pytest.mark.slow
async def test_what_transformers_computes(tmp_path: Path) -> None:
    """A new shard tries whether it keeps the bits, beside keys and values that the dead one has left."""
    rng = random.Random(2028)
    rounds = [make_asks(rng, 8, longest=160)]
    await survive(tmp_path, KILLS[:1] * 2, rounds, rng, "--num-shard", "1", "--model-impl", "transformers")


async def survive_a_few(tmp_path: Path, every_case: bool, *flags: str, model: Path = DEMO_MODEL) -> None:
    rng = random.Random(2027)
    blows = [*KILLS, *HANGS] if every_case else [rng.choice(KILLS)]
    await survive(tmp_path, blows, [make_asks(rng, 8, longest=320)], rng, *flags, model=model)
