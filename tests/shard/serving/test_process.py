"""A shard process's start and end."""

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from penstock.kernels import dispatch
from penstock.protos import services, shard_pb2
from penstock.shard.config import DEFAULT_GRAPHS, ShardConfig
from penstock.shard.startup.run import batches
from penstock.system.setting import Who
from penstock.system.settings import ServerSettings, told_to
from penstock.system.signs import Sign
from tests import kernel_sets
from tests.shard.processes import LIMITS, ROOT, SECONDS, Shard, clients, encode_plan, running
from tests.shard.step_programs import prompt_step
from tests.tiny_models import DEMO_MODEL

MODEL: dict[str, Any] = {"model": str(DEMO_MODEL), "dtype": "float32", "kv_memory": 64 << 20}


def refused(folder: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """What a shard of these settings has logged when it has ended with 1."""
    shard = Shard(folder, json_output=True, **settings)
    assert shard.process.wait(SECONDS) == 1
    return [json.loads(line) for line in shard.log.read_text().splitlines()]


def test_a_router_error_ends_the_process(tmp_path: Path) -> None:
    shard = Shard(tmp_path, **MODEL)
    shard.wait_until_listening()
    with clients([shard]) as (client,):
        stream = client.open()
        stream.write(encode_plan(prompt_step(0, slot=64)))
        with pytest.raises(grpc.RpcError):
            stream.read()
        assert shard.process.wait(SECONDS) == 1
    assert "OrderError: slot 64 is out of range: max_slots is 64" in shard.log.read_text()
    assert "Traceback" in shard.log.read_text()
    assert not shard.socket.exists()


def test_sigterm_lets_the_running_step_end(tmp_path: Path) -> None:
    with running(tmp_path, **MODEL, json_output=True) as (shard,), clients([shard]) as (client,):
        stream = client.open()
        stream.write(*(encode_plan(prompt_step(step_id, length=1024)) for step_id in range(200)))
        stream.read()
    for line in shard.log.read_text().splitlines():
        record = json.loads(line)
        assert record["level"] == "INFO"
        assert record["rank"] == 0


@pytest.mark.parametrize("world_size", [1, 2])
def test_shards_rest_with_their_weights_and_answer_afterwards_as_before(tmp_path: Path, world_size: int) -> None:
    answers = []
    with running(tmp_path, **MODEL, world_size=world_size, may_rest=True) as shards:
        for epoch in (1, 2):
            with clients(shards) as routers:
                streams = [router.open(replace(LIMITS, epoch=epoch)) for router in routers]
                for stream in streams:
                    stream.write(encode_plan(prompt_step(0)))
                answers.append(streams[0].read().rows)
                for stream in streams:
                    stream.done_writing()
            for shard in shards:
                shard.process.send_signal(signal.SIGUSR1)
            for shard in shards:
                while shard.log.read_text().count("resting until") < epoch:
                    time.sleep(0.01)
            assert not any(shard.socket.exists() for shard in shards)
            if epoch == 1:
                for shard in shards:
                    shard.process.send_signal(signal.SIGUSR2)
                for shard in shards:
                    shard.wait_until_listening()
    assert answers[0] == answers[1]


@pytest.mark.slow
def test_a_stale_socket_is_replaced_and_numbers_are_logged(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "0.sock"))
    shard = Shard(tmp_path, **MODEL, model_id="demo", block_size=32)
    try:
        with clients([shard]) as (client,):
            facts = client.stub.Describe(shard_pb2.DescribeRequest(), wait_for_ready=True, timeout=SECONDS)
        assert (facts.model_id, facts.block_size, facts.num_blocks) == ("demo", 32, 256)
    finally:
        assert shard.end() == 0
    log = shard.log.read_text()
    assert f"kernels {dispatch.path()}, dtype float32, 256 blocks of 32 tokens, 1 threads" in log
    assert "Loading weights" not in log  # a bar is for terminals, and this took less than the log's ten seconds


@pytest.mark.parametrize(("settings", "message"), [
    ({"model": "/nowhere"}, "/nowhere/config.json does not exist"),
    ({"kv_memory": 300000}, "300000 bytes of KV memory hold 2 blocks of 16 tokens and 16 are the "
                            "least: 1797152 bytes are missing, set --kv-memory to 2097152 or more"),
    ({"rank": 1}, "`rank` 1: a group of 1 has ranks 0 to 0"),
    ({"world_size": 2}, "`rendezvous` is needed for a `world_size` of 2"),
    ({"listen": ""}, "`listen` is needed: unix:/path or host:port"),
    ({"listen": "unix:/nowhere/x.sock"}, "`listen` unix:/nowhere/x.sock: the folder /nowhere does not exist"),
    ({"listen": "unix:/" + "x" * 120}, "the path has 121 bytes, a socket's has 107"),
])
def test_what_cannot_be_served_is_one_line(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    path = tmp_path / "0.sock"
    lines = refused(tmp_path, {**MODEL, **settings})
    (error,) = [line["message"] for line in lines if line["level"] == "ERROR"]
    assert message in error
    assert not path.exists()


@pytest.mark.parametrize(("text", "complaint"), [
    ("{", "Invalid JSON: "),
    ("[]", "Input should be an object, not []"),
    ("{}", "`model`: Field required"),
    ('{"model": "m", "colour": 1}', "`colour`: Unexpected keyword argument, not 1"),
    ('{"model": "m", "rank": -1}', "`rank`: Input should be greater than or equal to 0, not -1"),
    ('{"model": "m", "cuda_graphs": "1,2"}', "`cuda_graphs`: Input should be a valid array, not '1,2'"),
    ('{"model": "m", "cuda_graphs": [1, -2]}', "`cuda_graphs.1`: Input should be greater than or equal to 0, not -2"),
    ('{"model": "m", "cuda_memory_fraction": 1.5}', "`cuda_memory_fraction`: Input should be less than or equal to 1"),
    ('{"model": "m", "dtype": "float8"}', "`dtype`: Input should be 'float16', 'bfloat16' or 'float32', not 'float8'"),
    ('{"model": "m", "rope_factor": Infinity}', "`rope_factor`: Input should be a finite number, not inf"),
    ('{"model": "m", "port": 1}', "`port`: it is no setting of a shard"),
    ('{"model": "m", "kv_memory": 0}', "`kv_memory`: Input should be greater than 0, not 0")])
def test_wrong_settings_are_named(text: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        ShardConfig.from_argv(["--config", text])
    assert end.value.code == 2
    assert f"error: --config: {complaint}" in capsys.readouterr().err


def test_help_tells_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        ShardConfig.from_argv(["--help"])
    assert end.value.code == 0
    told = capsys.readouterr().out
    of_all = {each.name for each in dataclasses.fields(ServerSettings)}
    own = {each.name for each in dataclasses.fields(ShardConfig)} - of_all
    for name in own | {*told_to(Who.SHARD, ShardConfig(Path("m")))}:
        assert re.search(rf"^  {name} \(.+; (default: .*|needed)\)\n      [A-Z`]", told, re.MULTILINE), name
    assert "The name of the model; without one it is its directory." in told
    assert ",".join(map(str, DEFAULT_GRAPHS)) in told


@pytest.mark.slow
def test_what_cannot_be_served_leaves_others_alone(tmp_path: Path) -> None:
    """Neither the socket of a shard that listens, nor a file that --listen names by mistake."""
    file = tmp_path / "notes.txt"
    file.write_text("to be kept")
    with running(tmp_path, **MODEL) as (listening,):
        for settings in ({"listen": f"unix:{listening.socket}", "world_size": 2, "rank": 1},
                         {"listen": f"unix:{file}"}):
            refused = Shard(tmp_path, **MODEL, **settings)
            assert refused.process.wait(SECONDS) == 1
        assert listening.socket.is_socket()
    assert file.read_text() == "to be kept"


@pytest.mark.slow
@pytest.mark.parametrize(("kv_memory", "is_ready"), [(64 << 20, True), (300000, False)])
def test_ready_is_told_once_and_only_if_steps_can_be_run(tmp_path: Path, kv_memory: int, is_ready: bool) -> None:
    read_end, write_end = os.pipe()
    shard = Shard(tmp_path, **{**MODEL, "kv_memory": kv_memory, "signs_fd": write_end}, pass_fds=[write_end])
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        assert pipe.read().strip(Sign.ALIVE) == Sign.READY * is_ready
    assert shard.socket.exists() == is_ready
    assert (shard.end() if is_ready else shard.process.wait(SECONDS)) == (0 if is_ready else 1)


@pytest.mark.slow
def test_memory_that_is_kept_is_all_there_soon_after_a_shard_is_ready(tmp_path: Path) -> None:
    memory = os.memfd_create("test")
    try:
        with running(tmp_path, **MODEL, memory_fd=memory, pass_fds=[memory]):
            end = time.monotonic() + SECONDS
            while os.fstat(memory).st_blocks * 512 < MODEL["kv_memory"]:
                assert time.monotonic() < end
                time.sleep(0.01)
    finally:
        os.close(memory)


@pytest.mark.slow
def test_kernels_that_do_not_exist_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELS", "abacus")
    shard = Shard(tmp_path, **MODEL)
    assert shard.process.wait(SECONDS) == 1
    assert shard.log.read_text().startswith("shard 0: KERNELS=abacus: ")
    assert shard.log.read_text().count("\n") == 1


@pytest.mark.slow
def test_tcp(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    shard = Shard(tmp_path, **MODEL, listen=address)
    try:
        with grpc.insecure_channel(address) as channel:
            stub = services.stub(channel, shard_pb2)
            assert stub.Describe(shard_pb2.DescribeRequest(), wait_for_ready=True, timeout=SECONDS).vocab_size == 8192
        other = Shard(tmp_path, **MODEL, listen=address)
        assert other.process.wait(SECONDS) == 1
        assert f"`listen` {address}: cannot listen there" in other.log.read_text()
    finally:
        assert shard.end() == 0


@pytest.mark.slow
def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    parent = (
        "import json, os, subprocess, sys, time\n"
        "config = json.dumps({**json.loads(sys.argv[1]), 'parent_pid': os.getpid()})\n"
        "command = [sys.executable, '-m', 'penstock.shard', '--config', config]\n"
        "print(subprocess.Popen(command, stderr=subprocess.DEVNULL).pid, flush=True)\n"
        "time.sleep(100)\n")
    path = tmp_path / "0.sock"
    command = [sys.executable, "-c", parent, json.dumps({**MODEL, "listen": f"unix:{path}"})]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        while not path.exists():
            assert child.is_running()
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs([child], timeout=SECONDS)
    assert not child.is_running()
    assert not path.exists()


@pytest.mark.parametrize(("settings", "sentence"), [
    pytest.param({"device": "cuda"}, "--device cuda: torch ", marks=pytest.mark.skipif(
        kernel_sets.HAS_GPU, reason="there is a GPU")),
    ({"device": "cpu", "kv_cache_dtype": "fp8_e5m2"}, "--kv-cache-dtype fp8_e5m2: a processor has no ")])
def test_what_a_processor_cannot_do_is_refused_in_one_line(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    lines = refused(tmp_path, {**MODEL, **settings})
    (error,) = [line["message"] for line in lines if line["level"] == "ERROR"]
    assert error.startswith(sentence)
    assert [line["message"].partition(" ")[0] for line in lines if line["level"] != "ERROR"] in ([], ["memory:"])


@pytest.mark.slow
def test_what_a_processor_does_anyway_is_said(tmp_path: Path) -> None:
    settings = {"deterministic": True, "cuda_graphs": [1, 2], "cuda_memory_fraction": 0.5}
    with running(tmp_path, **MODEL, device="cpu", **settings) as (shard,):
        log = shard.log.read_text()
    assert ("WARNING shard-0: --cuda-memory-fraction 0.5 has no effect: the shard computes on the processor; "
            "--kv-memory says how much memory keys and values get\n") in log
    assert "--cuda-graphs: nothing is captured, for the shard computes on the processor" in log
    assert "; no answer changes with the batch, with and without --deterministic; " in log


def test_a_gpu_says_whether_answers_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "kernel_set", lambda: "gpu")
    config = ShardConfig(model=DEMO_MODEL)
    assert batches(config) == "answers may change with the batch, which --deterministic prevents"
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", True)
    assert batches(config) == "no answer changes with the batch"
