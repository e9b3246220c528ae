"""A group that loses a shard starts again: a real launcher, real processes, shards that speak gRPC."""

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator

import pytest

from tests.launcher.stand_in_processes import Launch, wait_until
from tests.launcher.test_lifecycle import READY, assert_nothing_is_left


def wait_for_new_shards(run: Launch, old: list[int]) -> None:
    """Two that listen, and none of the old."""
    wait_until(lambda: len(pids := run.who_noted("shard", "ready")) == 2 and not pids & set(old),
               lambda: f"new shards; events {run.events}; stderr:\n{run.errors}")


def wait_for_answers(run: Launch) -> None:
    """Until each shard has given the launcher two, which has read the first."""
    wait_until(lambda: len(run.who_noted("shard", "told 0 of 0")) == 2, lambda: f"answers; events {run.events}")


def end(run: Launch) -> None:
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(20) == 0
    assert_nothing_is_left(run)


def send(run: Launch, number: signal.Signals) -> None:
    for pid in run.pids("shard"):
        os.kill(pid, number)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """One that loses shards again and again, and then ends as if it had not."""
    with Launch(tmp_path_factory.mktemp("running"), (), {}) as run:
        run.wait_for(*READY)
        yield run
        end(run)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """One for which a second is a long time."""
    with Launch(tmp_path_factory.mktemp("impatient"), ("--step-timeout", "1"), {}) as run:
        run.wait_for(*READY)
        yield run
        end(run)


def lose(run: Launch, shard: str) -> set[str]:
    """Kills a shard; returns the names in the private folder once all are there anew."""
    shards, router = run.pids("shard"), run.pids("router")
    os.kill(run.pids(f"shard-{shard}")[0], signal.SIGKILL)
    wait_for_new_shards(run, shards)
    assert run.pids("router") == router
    assert f"shard {shard} was ended by SIGKILL, starting all shards again" in run.errors
    private, = run.private.iterdir()
    return {path.name for path in private.iterdir()}


@pytest.mark.parametrize("shard", ["1", pytest.param("0", marks=pytest.mark.slow)])
def test_dead_shard_takes_the_other_with_it_and_leaves_the_router(running, shard):
    before = lose(running, shard)
    names = lose(running, shard)
    assert names >= {"shard-0", "shard-1"}
    assert [name[-2:] for name in sorted(names - before)] == ["-0", "-1"]  # files by which they meet
    assert len(names) == 4


@pytest.mark.slow
def test_shards_that_meet_at_a_port_leave_no_files(launch):
    with launch("--master-port", "29500") as run:
        run.wait_for(*READY)
        assert lose(run, "1") == {"shard-0", "shard-1"}
        end(run)


def test_shard_whose_socket_is_removed_is_started_again(running):
    """Who is connected can go on, but the next router could not connect."""
    wait_for_answers(running)
    shards, (private,) = running.pids("shard"), running.private.iterdir()
    (private / "shard-1").unlink()
    wait_for_new_shards(running, shards)
    assert "shard 1 has lost its socket, for the file was removed, starting all shards again" in running.errors
    assert (private / "shard-1").is_socket()


def test_folder_that_is_removed_is_made_again(running):
    wait_for_answers(running)
    shards, (private,) = running.pids("shard"), running.private.iterdir()
    shutil.rmtree(private)
    wait_for_new_shards(running, shards)
    assert (private / "shard-0").is_socket()
    assert private.stat().st_mode & 0o777 == 0o700


def test_shard_that_is_stopped_is_found_by_its_silence(impatient):
    wait_for_answers(impatient)
    shards, router = impatient.pids("shard"), impatient.pids("router")
    os.kill(impatient.pids("shard-1")[0], signal.SIGSTOP)
    wait_for_new_shards(impatient, shards)
    assert impatient.pids("router") == router
    assert re.search(r" shard 1 has not answered for \d+\.\d s, starting all shards again\n", impatient.errors)


def test_router_that_is_stopped_is_found_by_its_silence(impatient):
    """However small the time for a step, one for the router to be held up stays: here 1.5 s."""
    shards, (router,) = impatient.pids("shard"), impatient.pids("router")
    os.kill(router, signal.SIGSTOP)
    wait_until(lambda: bool(impatient.who_noted("router", "ready") - {router}), lambda: f"it; {impatient.errors}")
    assert router not in impatient.pids("router")
    assert impatient.pids("shard") == shards
    assert re.search(r" the router has given no sign of life for 1\.[5-9] s, starting it again\n", impatient.errors)


@pytest.mark.slow
def test_step_that_does_not_end_is_found_by_its_age(launch):
    """An exchange that never returns holds every shard."""
    with launch("--step-timeout", "1") as run:
        run.wait_for(*READY)
        shards, router = run.pids("shard"), run.pids("router")
        send(run, signal.SIGUSR1)
        run.wait_for("shard-0 told 0 of 1", "shard-1 told 0 of 1")
        send(run, signal.SIGUSR2)
        run.wait_for("shard-0 told 1 of 1", "shard-1 told 1 of 1")
        send(run, signal.SIGUSR1)
        wait_for_new_shards(run, shards)
        assert run.pids("router") == router
        assert re.search(r" shard 0 has been in step 2 for \d+\.\d s, shard 1 has been in step 2 for \d+\.\d s, "
                         r"starting all shards again\n", run.errors)
        end(run)


@pytest.mark.slow
def test_steps_that_end_are_no_hang_however_many(launch):
    with launch("--step-timeout", "1") as run:
        run.wait_for(*READY)
        shards, start = run.pids("shard"), time.monotonic()
        for number in range(1, 9):
            send(run, signal.SIGUSR1)
            time.sleep(0.2)
            send(run, signal.SIGUSR2)
            run.wait_for(f"shard-0 told {number} of {number}")
        assert time.monotonic() - start > 1.5
        assert run.pids("shard") == shards
        end(run)


@pytest.mark.slow
def test_five_deaths_without_a_step_end_all(launch):
    with launch(shard_1="crashes") as run:
        assert run.process.wait(20) == 1
        assert run.events.count("shard-1 ready") == 5
        assert run.events.count("router ready") == 1
        assert run.events[-1] == "router hears that the shards are given up"
        assert "The shards died 5 times in a row without a completed step" in run.errors
        assert "shard 1 was ended by SIGKILL, so all processes end. Its last lines:\n    shard-1: out of memory\n" \
            in run.errors
        assert_nothing_is_left(run)


@pytest.mark.slow
def test_completed_steps_are_a_new_beginning(launch):
    with launch(shard_0="steps", shard_1="steps crashes") as run:
        run.wait_for(*["shard-1 ready"] * 7)
        assert run.events.count("router ready") == 1
        end(run)


@pytest.mark.slow
def test_shard_that_hangs_while_it_loads_is_found(launch):
    with launch("--startup-timeout", "6", shard_0="steps", shard_1="hangs") as run:
        run.wait_for("shard-1 hangs", "shard-1 hangs", "router hears of progress")
        assert re.search(r" shard 1 has made no progress in loading for \d+\.\d s, starting all shards again\n",
                         run.errors)
        assert run.events.count("router ready") == 1


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["loads", "crashes"])
def test_sigterm_while_the_group_is_away(launch, behaviour):
    """While a shard loads, and while the launcher waits before it starts them again."""
    with launch(shard_1=behaviour) as run:
        run.wait_for(*READY)
        if behaviour == "crashes":
            wait_until(lambda: run.errors.count("starting all shards again") == 4, lambda: run.errors)
        start = time.monotonic()
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(20) == 0
        assert time.monotonic() - start < 5
        assert run.events.count("shard-1 ready") == (4 if behaviour == "crashes" else 1)
        assert run.events.count("router ended") == 1
        assert_nothing_is_left(run)


@pytest.mark.slow
def test_second_sigint_while_the_group_starts_again(launch):
    with launch(router="deaf", shard_1="loads") as run:
        run.wait_for(*READY)
        os.kill(run.pids("shard-0")[0], signal.SIGKILL)
        wait_for_new_shards(run, [])
        run.process.send_signal(signal.SIGINT)
        run.wait_for("router SIGTERM")
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(20) == 130
        assert_nothing_is_left(run)


@pytest.mark.slow
def test_shard_that_dies_while_the_router_drains_is_replaced(launch):
    """Requests that run may need it."""
    with launch(router="deaf") as run:
        run.wait_for(*READY)
        shards = run.pids("shard")
        run.process.send_signal(signal.SIGTERM)
        run.wait_for("router SIGTERM")
        os.kill(run.pids("shard-0")[0], signal.SIGKILL)
        wait_for_new_shards(run, shards)
        os.kill(run.pids("router")[0], signal.SIGKILL)
        assert run.process.wait(20) == 0
        assert_nothing_is_left(run)
