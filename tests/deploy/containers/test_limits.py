"""Limits of a container are seen and kept: by memory, processors and their threads."""

import asyncio
import random
import re

from tests.deploy.containers.container import running
from tests.deploy.containers.engine import Engine
from tests.e2e.client import many_clients, metric, stream
from tests.e2e.prompts import source

MIB = 1 << 20
MEMORY, NUM_CPUS = 720, 1.5
LIMITS = ("--memory", f"{MEMORY}m", "--memory-swap", f"{MEMORY}m", "--cpus", str(NUM_CPUS))


async def test_long_prompts_stay_within_the_memory_and_nobody_is_killed(engine: Engine) -> None:
    rng = random.Random(6)
    prompts = [source(rng, 600) for _ in range(64)]
    assert min(len(prompt.split()) for prompt in prompts) >= 1300
    with running(engine, *LIMITS, "--env", "NUM_SHARD=2") as container:
        async with many_clients() as session:
            info = await (await session.get(f"{container.url}/info")).json()
            longest = info["max_total_tokens"] - 16  # fewer, where the container's cache of files takes memory
            assert longest >= 1700, info
            answers = await asyncio.gather(*(
                stream(session, container.url, prompt, truncate=longest, max_new_tokens=16) for prompt in prompts))
            assert await metric(session, container.url, "penstock_group_restarts") == 0, container.log()
        assert all(len(answer.ids) == 16 or answer.finish_reason == "eos_token" for answer in answers)
        assert not container.state["OOMKilled"]
        log = container.log()
        allowed = container.run("sh", "-c", "cat /proc/[0-9]*/task/*/status | grep Cpus_allowed_list | sort --unique")
        assert len(allowed.splitlines()) == 1, "a thread is bound to a processor, though others may be free"
        assert len(re.findall(r", 1 threads, ", log)) == 2, log
        used = int(container.run("sh", "-c", "cat /sys/fs/cgroup/memory/memory.usage_in_bytes 2> /dev/null"
                                 " || cat /sys/fs/cgroup/memory.current"))
    print(f"{used / MIB:.0f} of {MEMORY} MiB in use, with the cache of files")
    assert re.search(rf"within the limit of \S+.*{NUM_CPUS:g}", log), log


async def test_as_many_tasks_as_are_asked_for_are_enough(engine: Engine) -> None:
    with running(engine, "--pids-limit", "40", is_awaited=False) as container:
        assert container.wait() != 0
        [needed] = re.findall(r"(\d+) are needed for 1 shard", container.log())
    own = 2  # process 1 and the launcher
    with running(engine, "--pids-limit", str(int(needed) + own)) as container:
        async with many_clients() as session:
            answers = await asyncio.gather(*(
                stream(session, container.url, source(random.Random(number), 60), max_new_tokens=24)
                for number in range(64)))
            assert await metric(session, container.url, "penstock_group_restarts") == 0
        assert all(answer.ids for answer in answers)
        assert "WARNING" not in container.log()
