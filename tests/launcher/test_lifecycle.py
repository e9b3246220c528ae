"""Start, deaths and end of a group: a real launcher, real processes, real signals."""

import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.launcher import launch as launcher
from penstock.launcher import programs
from penstock.router import logs
from tests.launcher.stand_in_processes import Launch, wait_until
from tests.paths import DEMO_MODEL

READY = ("shard-0 ready", "shard-1 ready", "router ready")


def assert_nothing_is_left(run) -> None:
    assert run.pids() == []
    assert list(run.private.iterdir()) == []


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """One for the tests that let it run. Its first router that is started again refuses to, once."""
    with Launch(tmp_path_factory.mktemp("running"), (), {"router": "listens forgets", "api_key": "s3cret"}) as run:
        run.wait_for(*READY)
        yield run


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch):
    """refusal(*arguments): what a launcher in this process writes that refuses to start anything."""
    def no_program(*arguments: object) -> None:
        raise AssertionError("a program is made")

    def refusal(*arguments: str) -> str:
        result = CliRunner().invoke(
            launcher.main, ["--model-id", str(DEMO_MODEL), "--hostname", "127.0.0.1", "--port", "0", *arguments])
        assert result.exit_code == 2, result.output
        return result.output

    monkeypatch.setattr(programs, "program_of", no_program)
    monkeypatch.setattr(logs, "configure", lambda level, json_output, has_requests=True: None)
    term = signal.getsignal(signal.SIGTERM)
    yield refusal
    signal.signal(signal.SIGTERM, term)


def test_sigterm_drains_the_router_then_ends_the_shards(launch):
    with launch() as run:
        run.wait_for(*READY)
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(20) == 0
        events = [event for event in run.events if "told" not in event]
        assert events[3:5] == ["router SIGTERM", "router ended"]
        assert sorted(events[5:]) == ["shard-0 SIGTERM", "shard-0 ended", "shard-1 SIGTERM", "shard-1 ended"]
        assert_nothing_is_left(run)


def test_private_directory_is_private(running):
    private, = running.private.iterdir()
    assert private.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in private.iterdir()} >= {"shard-0", "shard-1"}


@pytest.mark.slow
def test_router_that_does_not_drain_is_killed(launch):
    with launch("-g", "0", router="deaf") as run:
        run.wait_for(*READY)
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(20) == 0
        assert "the router had requests left after 0 s" in run.errors
        assert "shard-0 ended" in run.events
        assert_nothing_is_left(run)


def test_second_sigint_ends_at_once(launch):
    with launch(router="deaf") as run:
        run.wait_for(*READY)
        run.process.send_signal(signal.SIGINT)
        run.wait_for("router SIGTERM")
        start = time.monotonic()
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(20) == 130
        assert time.monotonic() - start < 5
        assert "shard-0 SIGTERM" not in run.events
        assert_nothing_is_left(run)


def test_clients_wait_while_a_router_is_started_again(running):
    """The launcher holds the socket, and the shards live on. The first new router refuses, as if a file were away."""
    shards, (router,) = running.pids("shard"), running.pids("router")
    os.kill(router, signal.SIGKILL)
    wait_until(lambda: router not in running.pids("router"), lambda: "the router's end")
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as client:
        assert client.recv(10) == b"served"
    running.wait_for("router refuses", "router ready", "router ready")
    assert running.pids("shard") == shards
    assert "the router was ended by SIGKILL, starting it again" in running.errors
    assert "the router ended with exit code 2, starting it again" in running.errors


@pytest.mark.slow
def test_routers_that_served_may_die_as_often_as_they_like(launch):
    with launch() as run:
        run.wait_for(*READY)
        for number in range(2, 9):
            os.kill(run.pids("router")[0], signal.SIGKILL)
            run.wait_for(*["router ready"] * number)


@pytest.mark.slow
def test_router_that_starts_slowly_is_not_silent(launch):
    """On a busy machine it imports for longer than a step may take."""
    with launch("--step-timeout", "1", router="dawdles") as run:
        run.wait_for(*READY)
        assert "starting it again" not in run.errors


@pytest.mark.slow
@pytest.mark.parametrize(("content", "flags"), [
    ("key\n", ["--api-key-file"]), ("currency: USD\n", ["--data-dir", "/nowhere", "--prices"])], ids=["keys", "prices"])
def test_sighup_is_for_routers_that_know_it(launch, tmp_path, content, flags):
    (tmp_path / "file").write_text(content)
    with launch(*flags, str(tmp_path / "file"), router="dawdles") as run:
        run.wait_for("router dawdles")
        run.process.send_signal(signal.SIGHUP)
        run.wait_for(*READY)
        run.process.send_signal(signal.SIGHUP)
        run.wait_for("router SIGHUP")
        assert run.events.count("router dawdles") == 1


def test_shard_that_cannot_load_ends_all_and_its_words_are_printed_once(launch):
    with launch(shard_1="fails") as run:
        assert run.process.wait(20) == 1
        assert "shard 1 ended with exit code 1, so all processes end\n" in run.errors
        assert run.errors.count("shard-1: the checkpoint is damaged\n") == 1
        assert_nothing_is_left(run)


def test_router_with_settings_that_cannot_be_met_is_not_started_again(launch):
    with launch(router="refuses") as run:
        assert run.process.wait(20) == 1
        assert "starting it again" not in run.errors
        assert run.errors.count("router: these settings can't be met\n") == 1
        assert_nothing_is_left(run)


@pytest.mark.slow
def test_router_that_always_dies_is_given_up(launch):
    with launch(router="fails") as run:
        assert run.process.wait(20) == 1
        assert run.events.count("router fails") == 5
        assert "the router ended with exit code 1, so all processes end. Its last lines:\n" \
               "    router: the checkpoint is damaged\n" in run.errors
        assert_nothing_is_left(run)


def test_children_end_when_the_launcher_is_killed(launch):
    with launch() as run:
        run.wait_for(*READY)
        run.process.kill()
        run.wait_for("shard-0 orphaned", "shard-1 orphaned", "router orphaned")
        run.wait_for_no_child()


@pytest.mark.parametrize("is_there", [pytest.param(True, marks=pytest.mark.slow), False])
def test_sockets_in_a_given_folder(launch, refusal, tmp_path, is_there):
    """No other server takes the folder."""
    folder = tmp_path / "uds"
    if is_there:
        folder.mkdir(0o700)
        with socket.socket(socket.AF_UNIX) as old:
            old.bind(str(folder / "shard-0"))
    with launch("--shard-uds-path", str(folder)) as run:
        run.wait_for(*READY)
        assert (folder / "shard-1").is_socket()
        assert folder.stat().st_mode & 0o777 == 0o700
        assert f"Invalid argument: `shard_uds_path`: {folder} is in use by another server\n" in \
            refusal("--shard-uds-path", str(folder))
        os.kill(run.pids("shard-0")[0], signal.SIGKILL)
        run.wait_for(*READY, "shard-0 ready", "shard-1 ready")
        assert (folder / "shard-0").is_socket()
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(20) == 0
    assert folder.exists() == is_there
    assert not list(tmp_path.glob("uds/*"))


def test_folder_that_others_may_enter_is_refused(refusal, tmp_path):
    (tmp_path / "uds").mkdir(0o755)
    assert f"Invalid argument: `shard_uds_path`: {tmp_path}/uds must be a folder of yours that nobody else may " \
           "enter (mode 0700), or not exist yet\n" in refusal("--shard-uds-path", str(tmp_path / "uds"))


@pytest.mark.slow
def test_folder_that_cannot_be_made_again_lets_requests_fail(launch, tmp_path):
    parent = tmp_path / "parent"
    with launch("--shard-uds-path", str(parent / "uds"), shard_0="steps", shard_1="steps") as run:
        run.wait_for(*READY)
        shutil.rmtree(parent)
        parent.touch()
        assert run.process.wait(20) == 1
        reason = f"the group could not be started: Not a directory: {parent}/uds"
        assert f"{reason}, starting all shards again" in run.errors
        assert f"{reason}, so all processes end\n" in run.errors
        assert "Traceback" not in run.errors
        assert run.events[-1] == "router hears that the shards are given up"
        assert run.pids() == []


def test_port_in_use_is_refused_before_anything_starts(launch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with launch("--port", str(port)) as run:
            assert run.process.wait(20) == 2
            assert f"Invalid argument: `port`: cannot listen on 127.0.0.1 port {port}: Address already in use" \
                in run.errors
            assert run.events == []


@pytest.mark.parametrize(("name", "address"), [("grpc_port", "127.0.0.1"), ("master_port", "localhost")])
def test_other_ports_in_use_are_refused(refusal, name, address):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"Invalid argument: `{name}`: cannot listen on {address} port {port}: Address already in use" in \
            refusal(f"--{name.replace('_', '-')}", str(port), "--num-shard", "2")


def test_long_socket_path_is_refused(refusal):
    assert "`shard_uds_path`: 115 bytes are too many for a socket's path: /tmp/xxx" in \
        refusal("--shard-uds-path", "/tmp/" + "x" * 102)


def test_missing_file_is_named(refusal, tmp_path):
    (tmp_path / "config.json").touch()
    assert f"Invalid argument: `model_id`: {tmp_path} has no file tokenizer.json" in \
        refusal("--model-id", str(tmp_path))


def test_the_key_is_in_no_command_line_and_in_no_log(running):
    told = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (running.process.pid, *running.pids())]
    assert len(told) == 4
    assert not any(b"s3cret" in line for line in told)
    assert b"API_KEY=s3cret" in Path(f"/proc/{running.pids('router')[0]}/environ").read_bytes()
    assert "s3cret" not in running.errors


def test_certificate_that_cannot_be_read_is_named_before_anything_starts(refusal):
    assert "Invalid argument: `ssl_certfile`: cannot read /no/cert.pem: No such file or directory" in \
        refusal("--ssl-certfile", "/no/cert.pem", "--ssl-keyfile", "/no/key.pem")
