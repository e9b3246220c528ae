"""Long texts: the tokens that threads would find, in processes that end with whoever waits for them."""

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path

import psutil
import pytest
import tokenizers
from tokenizers.processors import TemplateProcessing

from penstock.router.text import encoding, long_texts
from penstock.router.text.encoding import TokenizerError, TooManyTokens
from penstock.router.text.tokenizer import MAX_SHORT, Tokenizer
from tests.router.text.tokenizers_for_tests import DEMO

WORDS = ["Hello", " wörld", "😀", "<|im_end|>", "!?", "\n\n", "  ", " the", "é", "123456", "▁", "\u0301"]
MEDIUM = "! " * 120_000
"""A text that takes tenths of a second, in which its process is found."""
ENDLESS = "! " * 900_000
"""A text that takes seconds: nobody waits for its end."""


@pytest.fixture
async def tokenizer() -> AsyncIterator[Tokenizer]:
    tokenizer = Tokenizer.load(DEMO)
    yield tokenizer
    tokenizer.close()
    assert not children()


def children() -> list[psutil.Process]:
    """The processes of long texts, not those that have ended."""
    return [each for each in psutil.Process().children(recursive=True) if is_of_long_texts(each)]


def forker() -> psutil.Process:
    """The process that has forked the others."""
    [process] = [each for each in psutil.Process().children() if is_of_long_texts(each)]
    return process


def is_of_long_texts(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "penstock.router.text.long_text_process" in process.cmdline()
    return False


def long_text(seed: int = 0, times: int = 1) -> str:
    text = "".join(random.Random(seed).choices(WORDS, k=times * MAX_SHORT // 3))
    assert len(text) > MAX_SHORT
    return text


async def until_working(number: int) -> list[psutil.Process]:
    """Wait until there are so many processes; returns them without the one that has forked the others."""
    async with asyncio.timeout(20):
        while len(found := children()) != number + 1:
            await asyncio.sleep(0.001)
    first = forker()
    return [each for each in found if each != first]


async def until_gone(process: psutil.Process) -> None:
    """Wait until a process has ended and whoever started it has taken notice."""
    async with asyncio.timeout(20):
        while process.is_running():
            await asyncio.sleep(0.001)


async def kill_worker() -> None:
    [working] = await until_working(1)
    working.send_signal(signal.SIGKILL)
    await until_gone(working)


async def split(tokenizer: Tokenizer, text: str) -> list[dict[str, object]]:
    return [token async for part in tokenizer.split(text) for token in json.loads(part)]


async def test_the_tokens_are_those_of_short_texts() -> None:
    inner = tokenizers.Tokenizer.from_file(str(DEMO))
    inner.post_processor = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    tokenizer, text = Tokenizer(inner), long_text()
    ids = encoding.encode(inner, text, True, None)
    assert await tokenizer.encode(text) == ids
    assert await tokenizer.encode(text, add_special_tokens=False) == ids[1:]
    assert await tokenizer.encode(text, truncate=1000, most=1000) == (0, *ids[-999:])
    tokens = [token for part in encoding.split(inner, text, True) for token in part]
    assert await split(tokenizer, text) == [
        {"id": token.id, "text": token.text, "start": token.start, "stop": token.stop} for token in tokens]
    data = text.encode()
    assert all(data[token.start:token.stop].decode() == token.text for token in tokens)
    assert tuple(token.id for token in tokens) == ids
    tokenizer.close()


async def test_places_are_the_package_s(tokenizer: Tokenizer) -> None:
    text = long_text(2)[:2000]
    whole = tokenizer._tokenizer.encode_batch([text])[0]
    byte_at = [len(text[:number].encode()) for number in range(len(text) + 1)]
    assert [(token.start, token.stop) for part in encoding.split(tokenizer._tokenizer, text, True) for token in part
            ] == [(byte_at[start], byte_at[stop]) for start, stop in whole.offsets]


async def test_too_many_tokens(tokenizer: Tokenizer) -> None:
    """What a text's length tells costs no process; otherwise they are counted."""
    text = long_text(1)
    number = len(encoding.encode(tokenizer._tokenizer, text, True, None))
    with pytest.raises(TooManyTokens) as counted:
        await tokenizer.encode(text, most=number - 1)
    assert (counted.value.number, str(counted.value)) == (number, str(number))
    assert len(await tokenizer.encode(text, most=number)) == number
    longest = await tokenizer._long_texts.most_bytes_of_a_token()
    assert longest == 64
    with pytest.raises(TooManyTokens) as estimated:
        await tokenizer.encode(text, most=10)
    least = -(-len(text.encode()) // longest)
    assert (estimated.value.number, str(estimated.value)) == (least, f"at least {least}")


async def test_a_text_that_is_none(tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError):
        await tokenizer.encode("\ud800" + "a" * MAX_SHORT)


async def test_who_leaves_ends_the_process(tokenizer: Tokenizer) -> None:
    """Also those that wait for their turn, and those that have read a part of the tokens."""
    asking = [asyncio.create_task(tokenizer.encode(ENDLESS)) for _ in range(3)]
    [working] = await until_working(1)
    for each in asking:
        each.cancel()
    await until_gone(working)
    async with aclosing(tokenizer.split(long_text(times=6))) as parts:
        await anext(parts)
        assert len(await until_working(1)) == 1
    await until_working(0)
    assert await tokenizer.encode(long_text())


async def test_shorter_ones_do_not_wait_for_the_longest(tokenizer: Tokenizer) -> None:
    endless = [asyncio.create_task(tokenizer.encode(ENDLESS)) for _ in range(2)]
    [working] = await until_working(1)
    assert await tokenizer.encode(long_text())
    assert working.nice() > psutil.Process().nice()
    assert not endless[0].done()
    assert working.is_running()
    for each in endless:
        each.cancel()
    await until_working(0)


async def test_a_process_that_is_killed_costs_nothing(tokenizer: Tokenizer) -> None:
    asking = asyncio.create_task(tokenizer.encode(MEDIUM, truncate=10))
    await kill_worker()
    assert await asking == encoding.encode(tokenizer._tokenizer, MEDIUM[-100:], True, 10)
    forker().send_signal(signal.SIGKILL)
    text = long_text()
    assert await tokenizer.encode(text) == encoding.encode(tokenizer._tokenizer, text, True, None)
    await until_working(0)  # the process of the last text has answered, and is about to end
    asking = asyncio.create_task(tokenizer.encode(ENDLESS))
    await kill_worker()
    await kill_worker()
    with pytest.raises(TokenizerError, match=r"more than \d+ MiB of memory or 30 s, or its process was killed twice"):
        await asking


async def test_its_memory_is_bounded(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(long_texts, "_memory", lambda num_bytes: 20 << 20)
        with pytest.raises(TokenizerError, match="more than 20 MiB"):
            await tokenizer.encode(ENDLESS)
    assert await tokenizer.encode(long_text())


async def test_what_became_of_the_file_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(DEMO.read_bytes())
    tokenizer = Tokenizer.load(path)
    path.unlink()
    assert await tokenizer.encode(long_text()) == encoding.encode(tokenizer._tokenizer, long_text(), True, None)
    tokenizer.close()


def test_the_most_memory(tokenizer: Tokenizer) -> None:
    """Two of 256 KiB and one of the longest, at 480 bytes for each of theirs, and the tokenizer's process."""
    mib, size = 1 << 20, DEMO.stat().st_size
    assert tokenizer.most_memory(2_000_000) == 40 * mib + 16 * size + 2 * (32 + 120) * mib + 32 * mib + 960_000_000
    assert tokenizer.most_memory(1000) == 40 * mib + 16 * size + 2 * (32 * mib + 480_000)
