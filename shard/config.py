"""Reads the shard's settings: one JSON object on its command line.

The one environment variable is a switch for tests: with SHARD_DIE_ON_TOKEN=ID a shard kills itself (SIGKILL) when it is
to compute a step with that token among its inputs, as a request does that hits a fatal bug.
"""

import argparse
import json
import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from penstock.system import addresses, cgroups
from penstock.system.setting import Who, settings
from penstock.system.settings import ServerSettings

MAX_SOCKET_PATH = 107                    # bytes that a Unix socket's address holds, sockaddr_un less its final zero
DEFAULT_GRAPHS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)
"""TGI's, and some for batches that it would run without graphs."""
MIXED_GRAPHS = (16, 32, 64, 128, 192, 256, 320, 384, 448, 512)
"""Tokens of steps with chunks of prompts. Up to about 150 a GPU waits for the weights whatever the padding; beyond, a
tile of 64 rows is what matmuls add. Larger steps take the device longer than their launches take the host."""


def _die_on_token() -> int | None:
    value = os.environ.get("SHARD_DIE_ON_TOKEN")
    return int(value) if value else None


@dataclass(frozen=True)
class ShardConfig(ServerSettings):
    """Holds everything that one shard is told when it starts: settings of the user, and the fields below. The rest it
    finds in the checkpoint or measures."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    model: Path
    """The directory of the checkpoint: config.json and safetensors files."""
    model_id: str = field(default="", kw_only=True)
    """The name of the model; without one it is its directory."""
    rank: NonNegativeInt = 0
    """This shard's place in its group."""
    world_size: PositiveInt = 1
    """How many shards the group has."""
    listen: str = ""
    """Where the router finds this shard: unix:/path or host:port."""
    group: str = ""
    """The name by which routers know the group; groups of a launcher's own need none."""
    shards_here: NonNegativeInt = 0
    """How many shards of the group listen at consecutive ports of this machine, in rank order."""
    folder: Path | None = None
    """The starting process's folder of a shard without a socket, which is removed as that of a socket is."""
    is_draining: bool = False
    """Whether the group drains from the start: routers then send it no sequences until it is told otherwise."""
    rendezvous: str = ""
    """Where the group meets: file:///path of a file that does not exist yet, or tcp://host:port, where rank 0 will
    listen. A group of one needs none."""
    exchanges: tuple[str, ...] = ()
    """Where the ranks of a group on several machines meet: host:port of each, in rank order. Then the rendezvous is
    for those of this machine alone."""
    generation: str = ""
    """Names this start of such a group: ranks of another meet nobody."""
    allow_clear_exchange: bool = False
    """Whether GPUs of several machines may exchange by NCCL, which encrypts nothing."""
    draft_model: Path | None = None
    """The directory of a checkpoint whose model proposes tokens that are then verified; null is none."""
    adapter_memory: NonNegativeInt = 0
    """Bytes of all adapters that are loaded at once, for which this shard leaves room."""
    max_step_tokens: PositiveInt = 4096
    """Tokens of the largest step that a GPU must have memory for; the default is TGI's."""
    max_step_rows: PositiveInt = 128
    """Rows of the largest step that a GPU must have memory for."""
    made_of: str | None = None
    """The user's name of the file that the checkpoint's directory was made of; null if it was not made."""
    served_name: str | None = None
    """The name of the model in the log, where a server has several."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    """From which level on the log is written."""
    has_bars: bool = False
    """Whether rank 0 shows progress by bars on stderr, for a terminal; otherwise its log tells of it every 10 s."""
    parent_pid: int | None = None
    """The process without which the shard ends: when it is no longer its parent, and no router needs the shard."""
    orphan_seconds: NonNegativeInt = 0
    """For how long a router may need the shard then."""
    keeps_folder: bool = False
    """Whether the folder of the socket is the user's: otherwise the shard removes it when it has lost that process."""
    memory_fd: int | None = None
    """A file descriptor of the file that a processor's KV memory is in, so that it outlives the shard."""
    gives_way: bool = False
    """Whether the shard loads while others serve, whose steps come first."""
    may_rest: bool = False
    """Whether SIGUSR1 lets this shard rest: it gives up all memory but that of the weights, until it gets SIGUSR2."""
    signs_fd: int | None = None
    """A file descriptor to which `.` is written when there is progress in loading, and `!` once steps can be run."""
    die_on_token: int | None = field(default_factory=_die_on_token)
    """A token whose step kills the shard, for tests."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads a JSON object of settings; ValueError says which are wrong, and why."""
        try:
            config = TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            raise ValueError("; ".join(_complaints(error))) from None
        others = {each.name for each, said, _ in settings(cls) if Who.SHARD not in said.who}
        if given := others & json.loads(text).keys():
            raise ValueError(f"`{min(given)}`: it is no setting of a shard")
        return config

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> Self:
        """Reads `--config JSON`, and what the starting process adds; a wrong command line ends it with status 2."""
        parser = _Parser(
            "python -m penstock.shard", formatter_class=argparse.RawDescriptionHelpFormatter,
            description="Serves one shard of a model to a router over gRPC. The address appears once the model can "
                        "answer.\nSIGTERM lets the running step end and exits with 0.")
        parser.add_argument("--config", required=True, metavar="JSON", help="an object of the settings below")
        parser.add_argument("--signs-fd", type=int, metavar="FD", help="as the setting, from the process that opens it")
        given = parser.parse_args(argv)
        try:
            config = cls.from_json(given.config)
        except ValueError as error:
            parser.error(f"--config: {error}")
        return config if given.signs_fd is None else replace(config, signs_fd=given.signs_fd)

    @property
    def socket_path(self) -> Path | None:
        """Returns the file that `listen` makes, if it makes one."""
        return Path(self.listen.removeprefix("unix:").removeprefix("//")) if self.listen.startswith("unix:") else None

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Returns the rows of the decode steps that are captured, ascending: up to what steps may have, and none
        without need."""
        given = DEFAULT_GRAPHS if self.cuda_graphs is None else self.cuda_graphs
        return _needed((size for size in given if size > 0), self.max_step_rows)

    @property
    def mixed_graph_sizes(self) -> tuple[int, ...]:
        """Returns the tokens of the other steps that are captured, ascending, likewise."""
        return _needed(MIXED_GRAPHS, self.max_step_tokens) if self.graph_sizes else ()

    @property
    def num_local(self) -> int:
        """Returns how many shards of the group are on this machine."""
        return self.shards_here if self.exchanges else self.world_size

    @property
    def local_rank(self) -> int:
        """Returns this shard's place among them."""
        return self.rank % self.num_local

    @property
    def num_threads(self) -> int:
        cores, quota = len(physical_cores()), cgroups.limits().cpus
        usable = cores if quota is None else min(cores, int(quota))
        return self.threads or max(1, usable // self.num_local)

    @property
    def cpus(self) -> tuple[int, ...]:
        """Returns where this shard's threads stay: each on a core of its own if the group uses them all, anywhere if
        not.

        A system that is left to itself may keep two threads that wake each other on one core. But on a machine of which
        this group has a part, others may be on the cores that it would choose; so may they where a quota limits the
        group's time.
        """
        if cgroups.limits().cpus is not None:
            return ()
        cores = physical_cores()
        if self.num_threads * self.num_local != len(cores):
            return ()
        first = self.local_rank * self.num_threads
        return cores[first:first + self.num_threads]

    def check(self) -> None:
        """Raises ValueError, naming the setting, for values that do not go together."""
        if not self.rank < self.world_size:
            raise ValueError(f"`rank` {self.rank}: a group of {self.world_size} has ranks 0 to {self.world_size - 1}")
        if self.world_size % self.pipeline_parallel_size:
            raise ValueError(f"`pipeline_parallel_size` {self.pipeline_parallel_size} does not divide the `world_size` "
                             f"of {self.world_size}")
        if self.pipeline_parallel_size > 1 and self.draft_model is not None:
            raise ValueError(f"`draft_model` {self.draft_model}: a draft model runs on shards that have all layers, "
                             f"not with a `pipeline_parallel_size` of {self.pipeline_parallel_size}")
        if self.exchanges:
            self._check_machines()
        elif self.world_size > 1 and not self.rendezvous:
            raise ValueError(f"`rendezvous` is needed for a `world_size` of {self.world_size}")
        if not self.listen:
            raise ValueError("`listen` is needed: unix:/path or host:port")
        self._check_tls()
        if self.socket_path and (length := len(os.fsencode(self.socket_path))) > MAX_SOCKET_PATH:
            raise ValueError(f"`listen` {self.listen}: the path has {length} bytes, a socket's has {MAX_SOCKET_PATH}")
        if self.socket_path and not self.socket_path.parent.is_dir():
            raise ValueError(f"`listen` {self.listen}: the folder {self.socket_path.parent} does not exist")

    def _check_machines(self) -> None:
        if len(self.exchanges) != self.world_size:
            raise ValueError(f"`exchanges` has {len(self.exchanges)} addresses for a `world_size` of {self.world_size}")
        if not self.shards_here or self.world_size % self.shards_here:
            raise ValueError(f"`shards_here` {self.shards_here}: every machine has as many of the {self.world_size}")
        if self.shards_here > 1 and not self.rendezvous:
            raise ValueError("`rendezvous` is needed for several shards on this machine")
        for address in self.exchanges:
            if self.shard_tls is None and not addresses.is_loopback(addresses.split(address)[0]):
                raise ValueError(f"`exchanges`: nothing is exchanged with {address} in the clear: `shard_tls_ca`, "
                                 "`shard_tls_cert` and `shard_tls_key` are needed")

    def _check_tls(self) -> None:
        if self.shard_tls is not None:
            self.shard_tls.check()
        elif not self.socket_path and not addresses.is_loopback(host := addresses.split(self.listen)[0]):
            raise ValueError(f"`listen` {self.listen}: no shard listens at {host} in the clear, where others can reach "
                             "it: `shard_tls_ca`, `shard_tls_cert` and `shard_tls_key` are needed")


def _needed(sizes: Iterable[int], most: int) -> tuple[int, ...]:
    """Returns the sizes, ascending, up to the first that is no less than `most`."""
    wanted = sorted({*sizes})
    return tuple(size for index, size in enumerate(wanted) if index == 0 or wanted[index - 1] < most)


class _Parser(argparse.ArgumentParser):
    """Describes the settings only to who asks for help: it takes longer than all else that the parser does."""

    def format_help(self) -> str:
        self.epilog = _help()
        return super().format_help()


def _complaints(error: ValidationError) -> Iterator[str]:
    for each in error.errors(include_url=False):
        name = ".".join(map(str, each["loc"]))
        given = "" if each["type"] in ("missing", "json_invalid") else f", not {each['input']!r}"
        yield f"`{name}`: {each['msg']}{given}" if name else f"{each['msg']}{given}"


def _help() -> str:
    """Returns a line or two on every setting: the values that it may have, its default and its meaning."""
    schema = TypeAdapter(ShardConfig).json_schema()
    meanings = {name: about["description"] for name, about in schema["properties"].items() if "description" in about}
    for each, said, _ in settings(ShardConfig):
        if Who.SHARD in said.who:
            meaning = said.help.removeprefix("Penstock: ")
            meanings[each.name] = meaning[0].upper() + meaning[1:]
    lines = ["settings:"]
    for name, meaning in meanings.items():
        about = schema["properties"][name]
        default = "needed" if name in schema["required"] else f"default: {json.dumps(about.get('default'))}"
        lines.append(f"  {name} ({_values(about)}; {default})")
        lines += textwrap.wrap(meaning, 116, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)


def _values(schema: dict[str, Any]) -> str:
    """Returns the values that a setting may have: their type, or all of them."""
    alternatives = schema.get("anyOf", [schema])
    return " or ".join(" or ".join(each["enum"]) if "enum" in each else each["type"] for each in alternatives)


def physical_cores() -> tuple[int, ...]:
    """Returns one CPU of each core that this process may run on: of a core's hyperthreads the first."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    return tuple(sorted({_core(cpu): cpu for cpu in sorted(cpus, reverse=True)}.values()))


def _core(cpu: int) -> tuple[str, ...]:
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        return (topology / "physical_package_id").read_text(), (topology / "core_id").read_text()
    except OSError:
        return (str(cpu),)
