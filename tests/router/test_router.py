"""The router's process: what it makes of its flags and its shards' facts, and its end before it serves."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.launcher.config import LauncherConfig
from penstock.launcher.launch import main
from penstock.router.__main__ import serve
from penstock.router.adapters.source import AdapterSource
from penstock.router.config import RouterConfig
from penstock.router.limits import LimitError, Limits
from penstock.router.notices import Notice, NoticePipe, giving_signs
from penstock.router.parts import registry_of
from penstock.router.text.tokenizer import Tokenizer
from penstock.system.arguments import InvalidArgument
from penstock.system.signs import Sign
from tests.fakes import FACTS
from tests.router.text.tokenizers_for_tests import DEMO


def config(*arguments: str, **of_router: Any) -> RouterConfig:
    with main.make_context("launcher", ["--model-id", "m", *arguments]) as context:
        return LauncherConfig.from_options(context.params).for_router(**{
            "model_dir": DEMO.parent, "tokenizer_json": DEMO, "revision": None, "shard_sockets": (), "listen_fd": -1,
            "notices_fd": -1} | of_router)


@pytest.mark.parametrize(("arguments", "num_blocks", "expected"), [
    ([], 256, (2047, 2048, 64, 4096, 128)),                                  # the model's context
    ([], 20, (279, 280, 64, 4096, 128)),                                     # 7/8 of what the memory holds
    (["--max-total-tokens", "100", "--max-input-tokens", "40"], 256, (40, 100, 64, 4096, 128)),
    (["--max-batch-prefill-tokens", "48"], 256, (2047, 2048, 48, 48, 47)),   # decode rows leave room for a prefill
    (["--max-batch-size", "3"], 256, (2047, 2048, 64, 4096, 3)),
])
def test_limits(arguments: list[str], num_blocks: int, expected: tuple[int, ...]) -> None:
    limits = Limits.resolve(config(*arguments), replace(FACTS, num_blocks=num_blocks))
    assert (limits.max_input_tokens, limits.max_total_tokens, limits.min_step_tokens,
            limits.max_batch_prefill_tokens, limits.max_slots) == expected


@pytest.mark.parametrize(("arguments", "num_blocks", "message"), [
    (["--max-total-tokens", "2049"], 256, "<= the model's context of 2048 tokens. Given: 2049"),
    (["--max-total-tokens", "321"], 20, "handle `max_total_tokens=321`: the KV memory holds 320 tokens"),
    ([], 0, "`max_total_tokens` must be >= 2, a prompt and an answer. Given: 0"),
    (["--max-input-tokens", "2048"], 256, "`max_input_tokens` must be < `max_total_tokens`. Given: 2048 and 2048"),
])
def test_limits_that_the_group_cannot_meet(arguments: list[str], num_blocks: int, message: str) -> None:
    with pytest.raises(LimitError, match=message):
        Limits.resolve(config(*arguments), replace(FACTS, num_blocks=num_blocks))


@pytest.mark.parametrize("arguments", [["--allow-runtime-adapters", "--api-key", "k"], []])
def test_adapters_of_a_model_that_takes_none(arguments: list[str]) -> None:
    sources = () if arguments else (AdapterSource("a", Path("/a"), "/a"),)
    facts = replace(FACTS, implementation="transformers")
    option = "allow_runtime_adapters" if arguments else "lora_adapters"
    with pytest.raises(InvalidArgument, match=rf"`{option}`: m, as it is computed here \(transformers\), takes no"):
        registry_of(config(*arguments, adapters=sources), facts)
    registry = registry_of(config(*arguments, adapters=sources), replace(facts, takes_adapters=True))
    assert [source.name for source in registry] == [source.name for source in sources]
    assert registry.max_bytes == 2**30
    assert len(registry_of(config(), facts)) == 0


def lose_launcher(notices: NoticePipe) -> None:
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), notices._end)


@pytest.mark.parametrize("end", [
    lambda notices: signal.raise_signal(signal.SIGTERM), lambda notices: notices.send(Notice.GIVEN_UP), lose_launcher])
async def test_it_ends_when_asked_to_while_the_shards_load(tmp_path: Path, end: Callable[[NoticePipe], None]) -> None:
    async with waiting_for_shards(tmp_path) as (serving, notices, _):
        end(notices)
        await asyncio.wait_for(serving, 60)


async def test_sighup_while_the_shards_load_does_nothing(tmp_path: Path) -> None:
    """The keys are read afterwards."""
    (tmp_path / "keys").write_text("key\n")
    unknown: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: unknown.append(number))
    try:
        async with waiting_for_shards(tmp_path, "--api-key-file", str(tmp_path / "keys")) as (serving, _, signs):
            signal.raise_signal(signal.SIGHUP)
            await asyncio.to_thread(os.read, signs, 1)
            assert not serving.done()
            signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(serving, 60)
        assert unknown == []
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_who_has_lost_the_launcher_keeps_the_users_folder(tmp_path: Path, is_kept: bool) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    async with waiting_for_shards(folder, keeps_folder=is_kept) as (serving, notices, _):
        lose_launcher(notices)
        await asyncio.wait_for(serving, 60)
    assert folder.exists() == is_kept


async def test_signs_for_a_launcher_that_is_dead_are_lost() -> None:
    signs, signs_end = os.pipe()
    os.close(signs)
    with giving_signs(signs_end) as tell:
        tell(Sign.READY)
    os.close(signs_end)


@asynccontextmanager
async def waiting_for_shards(
    folder: Path, *arguments: str, **of_router: Any
) -> AsyncIterator[tuple["asyncio.Task[None]", NoticePipe, int]]:
    """Runs a router whose shards never come; yields it when it has given its first sign, the launcher's end of its
    notices, and the pipe where its next signs can be read."""
    notices, (signs, signs_end) = NoticePipe(), os.pipe()
    settings = config(*arguments, shard_sockets=(f"unix:{folder}/shard-0",), folder=folder, notices_fd=notices.fd,
                      signs_fd=signs_end, **of_router)
    serving = asyncio.create_task(serve(settings, Tokenizer.load(DEMO, 1)))
    try:
        assert await asyncio.to_thread(os.read, signs, 1) == Sign.ALIVE
        assert not serving.done()
        yield serving, notices, signs
    finally:
        asyncio.get_running_loop().remove_reader(notices.fd)
        notices.close()
        os.close(signs)
        os.close(signs_end)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
