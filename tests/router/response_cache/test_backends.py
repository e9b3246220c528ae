"""The places of answers: each returns the bytes that it was given, until they are too old or too many."""

import asyncio
import secrets
from collections.abc import Sequence

import pytest

from penstock.router.metrics.metrics import Metrics
from penstock.router.response_cache import in_database
from penstock.router.response_cache.backend import Bounds
from penstock.router.response_cache.in_database import InDatabase
from penstock.router.response_cache.memory import Memory
from tests.router.response_cache.conftest import MakeBackend

BOUNDS = Bounds(1 << 20, 60.0)


async def test_answers_are_found_by_their_keys(make_backend: MakeBackend, metrics: Metrics) -> None:
    backend = await make_backend(BOUNDS, metrics.cache)
    contents = {secrets.token_bytes(32): secrets.token_bytes(size) for size in (1, 100, 70_000)}
    strange = secrets.token_bytes(32)
    assert await backend.get([*contents]) == {}
    await backend.put(contents)
    found = await backend.get([*contents, strange])
    assert {key: kept.content for key, kept in found.items()} == contents
    assert all(0 <= kept.age < 5 for kept in found.values())
    key = next(iter(contents))
    await backend.put({key: b"another"})
    assert (await backend.get([key]))[key].content == b"another"
    await backend.close()


async def test_several_servers_keep_the_same_at_once(make_backend: MakeBackend, metrics: Metrics) -> None:
    backend = await make_backend(BOUNDS, metrics.cache)
    keys = [b"%032d" % number for number in range(50)]
    for _ in range(4):
        await asyncio.gather(*(backend.put(dict.fromkeys(order, bytes(1000))) for order in (keys, keys[::-1], keys)))
    assert len(await backend.get(keys)) == 50
    await backend.close()


async def test_requests_at_once_share_reads(make_backend: MakeBackend, metrics: Metrics) -> None:
    backend = await make_backend(BOUNDS, metrics.cache)
    if isinstance(backend, InDatabase):
        contents = {b"%032d" % number: b"%d" % number for number in range(100)}
        await backend.put(contents)
        reads: list[int] = []
        find = backend._answers.find

        async def counted(keys: Sequence[bytes]) -> dict[bytes, tuple[bytes, float]]:
            reads.append(len(keys))
            return await find(keys)

        backend._answers.find = counted  # type: ignore[method-assign]
        asking = [asyncio.create_task(backend.get([key, b"none"])) for key in contents]
        asking.pop().cancel()
        found = await asyncio.gather(*asking)
        assert [{key: kept.content for key, kept in each.items()} for each in found] == [
            {key: content} for key, content in [*contents.items()][:-1]]
        assert len(reads) <= 2
    await backend.close()


async def test_old_answers_are_gone(make_backend: MakeBackend, metrics: Metrics) -> None:
    backend = await make_backend(Bounds(1 << 20, 0.001), metrics.cache)
    if isinstance(backend, Memory | InDatabase):  # Redis counts whole seconds, and drops them itself
        await backend.put({b"key": b"content"})
        await asyncio.sleep(0.002)
        assert await backend.get([b"key"]) == {}
    await backend.close()


async def test_of_too_many_answers_some_leave(
    make_backend: MakeBackend, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_database, "SWEEP_SECONDS", 0.0)
    backend = await make_backend(Bounds(10_000, 60.0), metrics.cache)
    keys = [b"%032d" % number for number in range(20)]
    for key in keys:
        await backend.put({key: bytes(1000)})
        if isinstance(backend, InDatabase) and backend._sweeping is not None:
            await backend._sweeping
    found = [*await backend.get(keys)]
    if isinstance(backend, Memory | InDatabase):
        assert 5 <= len(found) <= 10
        assert sorted(found) == keys[-len(found):]
        assert 5000 < metrics.cache._bytes._value.get() <= 10_000
    await backend.close()


async def test_memory_drops_what_was_not_asked_for(metrics: Metrics) -> None:
    memory = Memory(Bounds(3000, 60.0), metrics.cache)
    await memory.put({b"one": bytes(1000), b"two": bytes(1000)})
    await memory.get([b"one"])
    await memory.put({b"three": bytes(1000)})
    assert {*await memory.get([b"one", b"two", b"three"])} == {b"one", b"three"}
