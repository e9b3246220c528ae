"""A server of a user whom no file names, without a home, where one folder can be written and no other."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.bench.programs.children import free_port
from tests import namespaces
from tests.e2e.client import generate, many_clients
from tests.e2e.server import Server, launcher_command
from tests.paths import DEMO_MODEL

USER = 54321
WORD = {"type": "regex", "value": "[a-z]{1,9}"}
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder, log, port = tmp_path / "folder", tmp_path / "log", free_port()
    folder.mkdir()
    confined = [*namespaces.read_only(f"mount -t tmpfs -o mode=1777 tmpfs {folder}"), *namespaces.user(USER)]
    namespaces.need(confined)
    known = {name: value for name, value in os.environ.items()
             if name not in ("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME", "HF_HOME")}
    with log.open("wb") as output:
        process = subprocess.Popen([*confined, *launcher_command(DEMO_MODEL, port, "--num-shard", "2", "--env")],
                                   env=known | {"TMPDIR": str(folder)}, stdout=output, stderr=subprocess.STDOUT)
    try:
        server = Server(process, port, log)
        server.wait_until_healthy()
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
async def test_a_user_without_name_and_home_is_served_from_one_folder(server: Server) -> None:
    assert {child.uids().effective for child in server.processes()} == {USER}
    async with many_clients() as session:
        answer = await generate(session, server.url, "def", max_new_tokens=9, grammar=WORD)
        assert answer.text.isalpha()
        async with session.post(f"{server.url}/v1/chat/completions", json=CHAT) as response:
            assert response.status == 200, await response.text()
    assert server.terminate() == 0
    assert "Traceback" not in server.log.read_text()
