"""The command lines of the processes that are placed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from penstock.cluster.config import ClusterConfig
from penstock.launcher.cli import main
from penstock.launcher.config import LauncherConfig
from penstock.launcher.group_options import completed, refuse_options_of_shards
from penstock.system import addresses
from penstock.system.arguments import InvalidArgument

SET_ELSEWHERE = {
    "router": {"model_id": "model", "port": "router.port", "groups": "", "hostname": "",
               "shard_tls_ca": "tls.ca", "shard_tls_cert": "tls.cert", "shard_tls_key": "tls.key",
               "shard_tls_name": "tls.name"},
    "group": {"model_id": "model", "num_shard": "group.num_shard", "listen": "", "group_name": "", "nnodes": "",
              "node_rank": "", "master_addr": "", "master_port": "", "shard_tls_ca": "tls.ca",
              "shard_tls_cert": "tls.cert", "shard_tls_key": "tls.key", "shard_tls_name": "tls.name"},
}
"""The options that are no one's to give, and by which field of cluster.yaml the value is chosen, if by any."""
ANYWHERE = "0.0.0.0"


def router_command(config: ClusterConfig, groups_file: str) -> list[str]:
    """Returns the arguments of `penstock` that run a router which finds its groups by a file."""
    return ["serve", config.model, "--groups", groups_file, "--hostname", ANYWHERE, "--port", str(config.router.port),
            *_tls(config), *given(config.router.options)]


def group_command(
    config: ClusterConfig, name: str, host: str, port: int, rank: int = 0, master: tuple[str, int] | None = None
) -> list[str]:
    """Returns the arguments of `penstock` that run one part of a group, whose first shard listens at a port; `master`
    is where the parts meet, if there are several."""
    options = dict(config.group.options)
    options.setdefault("threads", max(1, int(config.group.cpus)))
    meeting = [] if master is None else [
        "--nnodes", str(config.group.nodes), "--node-rank", str(rank), "--master-addr", master[0],
        "--master-port", str(master[1])]
    return ["group", config.model, "--listen", addresses.joined(host, port), "--group-name", name,
            "--num-shard", str(config.group.num_shard), *meeting, *_tls(config), *given(options)]


def given(options: Mapping[str, Any]) -> list[str]:
    """Returns options as they stand on a command line: true is a flag, false is none, and a list repeats its option."""
    def words() -> Iterator[str]:
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            for each in value if isinstance(value, list) else [value]:
                if each is not False:
                    yield flag if each is True else f"{flag}={each}"

    return list(words())


def check(config: ClusterConfig) -> None:
    """Raises InvalidArgument, which names the field, for an option that does not exist, is not to be chosen, or has a
    value that its command refuses."""
    for part, options in (("router", config.router.options), ("group", config.group.options)):
        for name in options:
            if (field := SET_ELSEWHERE[part].get(name)) is not None:
                raise InvalidArgument(f"`{part}.options.{name}` is not to be chosen here"
                                      + (f": give `{field}`" if field else ": each process has a value of its own"))
    with _context(router_command(config, "127.0.0.1:1"), "router.options") as context:
        refuse_options_of_shards(context)
        LauncherConfig.from_options(context.params)
    master = ("127.0.0.1", config.group.first_port) if config.group.nodes > 1 else None
    line = group_command(config, config.name, "127.0.0.1", config.group.first_port, 0, master)
    with _context(line, "group.options") as context:
        LauncherConfig.from_options(completed(context))


def router_settings(config: ClusterConfig) -> dict[str, Any]:
    """Returns the options of `penstock serve` as a router here will have them, also from this process's environment."""
    with _context(router_command(config, "127.0.0.1:1"), "router.options") as context:
        return context.params


@contextmanager
def _context(arguments: Sequence[str], field: str) -> Iterator[click.Context]:
    """Gives the context in which `penstock` would run with these arguments; its errors name the field."""
    command = main.get_command(click.Context(main), arguments[0])
    assert command is not None
    try:
        with command.make_context(arguments[0], [*arguments[1:]]) as context:
            yield context
    except click.ClickException as error:
        raise InvalidArgument(f"`{field}`: {error.format_message()}") from error


def _tls(config: ClusterConfig) -> list[str]:
    if config.tls is None:
        return []
    files = ["--shard-tls-ca", str(config.tls.ca), "--shard-tls-cert", str(config.tls.cert),
             "--shard-tls-key", str(config.tls.key)]
    return files + (["--shard-tls-name", config.tls.name] if config.tls.name else [])
