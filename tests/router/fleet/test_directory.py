"""Following where the groups are."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from penstock.router.fleet import directory
from penstock.router.fleet.directory import SpecDirectory
from penstock.router.fleet.groups_spec import GroupsSpec


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "POLL_SECONDS", 0.01)


async def following(spec: str) -> AsyncGenerator[frozenset[str], None]:
    async for found in SpecDirectory(GroupsSpec.parse(spec)).watch():
        yield found


async def after(found: AsyncGenerator[frozenset[str], None]) -> frozenset[str]:
    async with asyncio.timeout(5):
        return await anext(found)


async def test_a_list_is_told_once_and_never_changes() -> None:
    assert [found async for found in following("a:1,b:2")] == [{"a:1", "b:2"}]


async def test_a_file_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "groups.yaml"
    file.write_text("groups: ['a:1']")
    found = following(str(file))
    assert await after(found) == {"a:1"}
    file.write_text("groups: ['a:1', 'b:2']")
    assert await after(found) == {"a:1", "b:2"}
    with caplog.at_level(logging.ERROR):
        coming = asyncio.create_task(after(found))
        file.write_text("groups: [")
        await asyncio.sleep(0.1)
        file.unlink()
        await asyncio.sleep(0.1)
        assert not coming.done(), "they stay as they were"
    assert len(caplog.messages) == 2, "each fault is told once"
    file.write_text("groups: ['b:2']")
    assert await coming == {"b:2"}
    await found.aclose()


async def test_a_name_is_looked_up_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    answers: list[list[str] | Exception] = [
        socket.gaierror(socket.EAI_AGAIN, "nobody answers"), socket.gaierror(socket.EAI_NONAME, "there is none"),
        ["10.0.0.2", "10.0.0.1"], socket.gaierror(socket.EAI_AGAIN, "nobody answers"), OSError("no network"),
        ["10.0.0.1", "10.0.0.2"], ["10.0.0.2"]]

    async def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        assert (host, port) == ("groups.test", 4000)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in answer]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    found = following("dns:groups.test:4000")
    assert await after(found) == set()
    assert await after(found) == {"10.0.0.1:4000", "10.0.0.2:4000"}
    assert await after(found) == {"10.0.0.2:4000"}, "nothing was told while nobody answered, or all was as before"
    await found.aclose()
    nobody = f"the groups stay as they were: [Errno {socket.EAI_AGAIN}] nobody answers"
    assert caplog.messages == [nobody, f"no groups are listed: [Errno {socket.EAI_NONAME}] there is none", nobody,
                               "the groups stay as they were: no network"], "a router without groups says why"
