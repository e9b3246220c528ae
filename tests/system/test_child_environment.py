import subprocess
import sys
from pathlib import Path

import pytest

from penstock.system import child_environment

FORKS = """
import asyncio, os, sys
from asyncio.subprocess import PIPE
import grpc, uvloop

async def call(address):
    while True:
        async with grpc.aio.insecure_channel(address) as channel:
            try:
                await channel.unary_unary("/none/such")(b"")
            except grpc.RpcError:
                pass

async def main(address):
    server = grpc.aio.server()
    server.add_insecure_port(address)
    await server.start()
    calls = [asyncio.create_task(call(address)) for _ in range(4)]
    for _ in range(200):
        child = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
        assert (await child.communicate(b"here"))[0] == b"here"
    print("all of them lived", flush=True)
    os._exit(0)

uvloop.run(main(sys.argv[1]))
"""


@pytest.mark.slow
def test_processes_live_that_are_started_amid_calls_of_grpc(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORKS, f"unix:{tmp_path}/s"], env=child_environment.for_router(),
                          capture_output=True, text=True, timeout=120)
    assert done.stdout == "all of them lived\n", done.stderr
