"""The command lines of `penstock group` and of `penstock serve --groups`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.launcher import group_launch
from penstock.launcher.cli import main
from penstock.launcher.config import LauncherConfig
from penstock.launcher.group_options import GROUP_OPTIONS, OF_SHARDS, SHARED
from penstock.launcher.hub import Checkpoint
from penstock.launcher.nodes import Start
from penstock.launcher.options import OPTIONS
from penstock.launcher.programs import group_programs, router_programs
from penstock.launcher.socket_folder import SocketFolder
from penstock.router import logs
from penstock.router.config import RouterConfig
from penstock.shard.config import ShardConfig
from tests.certificates import Authority, authority, flags

Group = Callable[..., Result]
CHECKPOINT = Checkpoint(Path("/models/m"), None)


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[LauncherConfig]:
    found: list[LauncherConfig] = []
    monkeypatch.setattr(group_launch, "launch", lambda config: found.append(config) or 0)
    monkeypatch.setattr(logs, "configure", lambda level, json_output, has_requests=True: None)
    return found


@pytest.fixture
def group(configs: list[LauncherConfig]) -> Group:
    """group("--listen", "127.0.0.1:1", NUM_SHARD="2"): the command line and the environment."""
    return lambda *arguments, **variables: CliRunner().invoke(main, ["group", "m", *arguments], env=variables)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls") / "ca")


def told(config: LauncherConfig, is_draining: bool = False, start: Start | None = None) -> list[ShardConfig]:
    """What its shards are told."""
    folder = SocketFolder(Path("/tmp/none"))
    folder.prepare = lambda: None  # type: ignore[method-assign]
    programs = group_programs(config, CHECKPOINT, folder, [], lambda: is_draining, lambda: start)()
    return [ShardConfig.from_argv(program.argv[program.argv.index("penstock.shard") + 1:]) for program in programs]


def test_every_name_is_an_option_of_the_launcher() -> None:
    assert {*SHARED, *OF_SHARDS} <= {option.name for option in OPTIONS}
    assert {*OF_SHARDS} <= {option.name for option in GROUP_OPTIONS}


def test_a_group_listens_at_ports_in_rank_order(group: Group, configs: list[LauncherConfig]) -> None:
    assert group("--listen", "127.0.0.1:4000", "--num-shard", "2", "--dtype", "float32", PORT="x").exit_code == 0
    first, second = told(configs[0], is_draining=True)
    assert (first.listen, second.listen) == ("127.0.0.1:4000", "127.0.0.1:4001")
    assert (first.group, first.shards_here, first.world_size, first.shard_tls) == ("127.0.0.1:4000", 2, 2, None)
    assert (first.dtype, first.is_draining, first.adapter_memory) == ("float32", True, 0)
    assert first.folder == Path("/tmp/none")
    for shard in (first, second):
        shard.check()


def test_a_group_has_stages(group: Group, configs: list[LauncherConfig]) -> None:
    stages = ("--num-shard", "4", "--pipeline-parallel-size", "2")
    assert group("--listen", "127.0.0.1:4000", *stages).exit_code == 0
    assert [shard.pipeline_parallel_size for shard in told(configs[0])] == [2] * 4


def test_a_group_has_a_name_certificates_and_room_for_adapters(
    group: Group, configs: list[LauncherConfig], ca: Authority
) -> None:
    tls = ca.issue("node")
    result = group("--group-name", "blue", "--max-adapter-memory", "2GiB", *flags(tls), LISTEN="0.0.0.0:4000")
    assert result.exit_code == 0, result.output
    [shard] = told(configs[0])
    assert (shard.listen, shard.group, shard.shard_tls, shard.adapter_memory) == ("0.0.0.0:4000", "blue", tls, 2 << 30)
    assert configs[0].place
    assert configs[0].place.asked_at(0) == "127.0.0.1:4000"
    shard.check()


def test_a_machine_of_several_has_its_part_of_the_ranks(
    group: Group, configs: list[LauncherConfig], ca: Authority
) -> None:
    result = group("--listen", "[::]:4000", "--num-shard", "4", "--nnodes", "2", "--node-rank", "1", "--master-addr",
                   "10.0.0.7", "--master-port", "4100", *flags(ca.issue("two")))
    assert result.exit_code == 0, result.output
    shards = told(configs[0], start=Start("abc", ("10.0.0.7", "10.0.0.8")))
    assert [(shard.rank, shard.listen) for shard in shards] == [(2, "[::]:4000"), (3, "[::]:4001")]
    for shard in shards:
        assert shard.exchanges == ("10.0.0.7:4101", "10.0.0.7:4102", "10.0.0.8:4103", "10.0.0.8:4104")
        assert (shard.group, shard.generation, shard.shards_here) == ("10.0.0.7:4100", "abc", 2)
        assert (shard.world_size, shard.orphan_seconds, shard.rendezvous[:8]) == (4, 0, "file:///")
        shard.check()
    assert configs[0].place
    assert configs[0].place.asked_at(3) == "[::1]:4001"


NODES = ["--listen", "127.0.0.1:1", "--nnodes", "2", "--num-shard", "2"]


@pytest.mark.parametrize(("arguments", "complaint"), [
    ([], "Missing option '--listen'"), (["--listen", "here"], "'here' is no HOST:PORT"),
    (["--listen", "127.0.0.1:65535", "--num-shard", "2"], "2 shards from port 65535 on need ports up to 65536"),
    (["--listen", "0.0.0.0:1"], "shards do not listen at 0.0.0.0 in the clear"),
    (["--listen", "gpu:1"], "give --shard-tls-ca, --shard-tls-cert and --shard-tls-key, or listen at 127.0.0.1"),
    (["--listen", "127.0.0.1:1", "--port", "1"], "No such option"),
    (NODES, "`master_port` is missing"), ([*NODES, "--num-shard", "3"], "3 can't be dealt out to `nnodes` = 2"),
    ([*NODES, "--node-rank", "2"], "`node_rank` must be < `nnodes`. Given: 2 and 2"),
    ([*NODES, "--master-port", "65534"], "the 2 ports behind 65534, the last one is 65535"),
    ([*NODES, "--master-port", "1", "--master-addr", "10.0.0.1"], "machines do not meet at 10.0.0.1 in the clear"),
    ([*NODES, "--master-port", "1", "--master-addr", "0.0.0.0"], "at which the others reach node 0. Given: 0.0.0.0"),
    (["--listen", "127.0.0.1:1", "--num-shard", "2", "--master-port", "1", "--master-addr", "10.0.0.1"],
     "the shards of one machine do not meet in the clear at 10.0.0.1, where"),
    (["--listen", "127.0.0.1:1", "--allow-clear-exchange"], "`allow_clear_exchange` is for several machines"),
    (["--listen", "127.0.0.1:1", "--shard-tls-ca", "/x"], "must be given together"),
    (["--listen", "127.0.0.1:1", "--shard-tls-ca", "/x", "--shard-tls-cert", "/x", "--shard-tls-key", "/x"],
     "cannot read /x: No such file or directory")])
def test_what_is_no_group(group: Group, configs: list[LauncherConfig], arguments: list[str], complaint: str) -> None:
    result = group(*arguments)
    assert (result.exit_code, configs) == (2, [])
    assert complaint in result.output


def test_a_key_that_is_not_the_certificates_is_refused(group: Group, ca: Authority) -> None:
    one, other = ca.issue("one"), ca.issue("other")
    result = group("--listen", "127.0.0.1:1", "--shard-tls-ca", str(ca.folder / "ca.pem"), "--shard-tls-cert",
                   str(one.cert), "--shard-tls-key", str(other.key))
    assert result.exit_code == 2
    assert "are no CA, certificate and its key" in result.output


def test_a_router_is_told_of_groups_and_has_no_shards(parse: Any, ca: Authority) -> None:
    tls = ca.issue("router", name="my-shards")
    config = parse("--groups", "gpu-1:4000,gpu-2:4000", *flags(tls), SHARD_TLS_NAME="my-shards")
    [program] = router_programs(config, CHECKPOINT, SocketFolder(Path("/tmp/s")), 3, [4])
    told = RouterConfig.from_argv([*program.argv[program.argv.index("penstock.router") + 1:], "--signs-fd", "5"])
    assert (told.groups, told.shard_sockets, told.folder) == ("gpu-1:4000,gpu-2:4000", (), Path("/tmp/s"))
    assert told.shard_tls
    assert (told.shard_tls.cert, told.shard_tls.name) == (tls.cert, "my-shards")
    assert parse("--groups", "127.0.0.1:4000").shard_tls is None
    assert parse("--groups", "").groups is None


@pytest.mark.parametrize(("arguments", "variables", "complaint"), [
    (["--groups", "x"], {}, "`groups`: 'x' is none of HOST:PORT"),
    (["--groups", "./no.yaml"], {}, "/no.yaml: No such file or directory"),
    (["--groups", "gpu:1"], {}, "`groups`: gpu:1 is not reached in the clear"),
    (["--groups", "localhost:1", "--num-shard", "2"], {}, "--num-shard concerns shards, and with --groups none are"),
    (["--groups", "localhost:1", "--pipeline-parallel-size", "2"], {}, "--pipeline-parallel-size concerns shards"),
    (["--groups", "localhost:1"], {"DTYPE": "float32"}, "--dtype (environment variable DTYPE) concerns shards"),
    (["--shard-tls-ca", "/a", "--shard-tls-cert", "/b", "--shard-tls-key", "/c"], {}, "need `groups`")])
def test_what_no_router_of_groups_takes(
    invoke: Any, started: list[LauncherConfig], arguments: list[str], variables: dict[str, str], complaint: str
) -> None:
    result = invoke("--model-id", "m", *arguments, **variables)
    assert (result.exit_code, started) == (2, [])
    assert complaint in result.output
