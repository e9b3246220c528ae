"""The shard's settings, as its command line gives them.

The one environment variable is a switch for tests: with SHARD_DIE_ON_TOKEN=ID a shard kills itself (SIGKILL) when it is
to compute a step with that token among its inputs, as a request does that hits a fatal bug.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

MAX_SOCKET_PATH = 107                    # bytes that a Unix socket's address holds, sockaddr_un less its final zero
DEFAULT_GRAPHS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)
"""TGI's, and some for batches that it would run without graphs."""


def _die_on_token() -> int | None:
    value = os.environ.get("SHARD_DIE_ON_TOKEN")
    return int(value) if value else None


@dataclass(frozen=True, slots=True)
class ShardConfig:
    """Everything one shard is told when it starts. The rest it finds in the checkpoint or measures."""

    model: Path
    rank: int = 0
    world_size: int = 1
    listen: str = ""                     # unix:/path or host:port
    rendezvous: str = ""                 # file:///path or tcp://host:port; unused in a group of one
    dtype: str | None = None             # None: the checkpoint's
    kv_cache_dtype: str | None = None    # of K and V, as KV_DTYPES names them; None: the model's
    model_id: str | None = None          # None: the path
    device: str = "auto"                 # auto, cpu or cuda
    is_deterministic: bool = False       # the bit contract on a GPU; a processor keeps it always
    kv_memory: int | None = None         # bytes; None: a share of the free memory, or what a GPU has left
    cuda_memory_fraction: float = 1.0    # of a GPU's memory, that may be used
    cuda_graphs: tuple[int, ...] | None = None  # rows of the steps that are captured; None: DEFAULT_GRAPHS
    max_step_tokens: int = 4096          # of the largest step that there must be memory for; TGI's default
    max_step_rows: int = 128             # the same, of its rows
    block_size: int = 16                 # tokens
    watermark_gamma: float = 0.5         # how much of the vocabulary a watermark prefers
    watermark_delta: float = 2.0         # what it adds to the logits
    threads: int | None = None           # None: this shard's share of the physical cores
    otlp_endpoint: str | None = None     # a collector's; None: nothing is traced
    otlp_service_name: str = "text-generation-inference.router"
    ready_fd: int | None = None          # gets one byte once steps can be run
    die_on_token: int | None = field(default_factory=_die_on_token)

    @property
    def socket_path(self) -> Path | None:
        """The file that `listen` makes, if it makes one."""
        return Path(self.listen.removeprefix("unix:").removeprefix("//")) if self.listen.startswith("unix:") else None

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Rows of the steps that are captured, ascending: as many as steps may have, and none that is not needed."""
        given = DEFAULT_GRAPHS if self.cuda_graphs is None else self.cuda_graphs
        wanted = sorted({size for size in given if size > 0})
        return tuple(size for index, size in enumerate(wanted)
                     if index == 0 or wanted[index - 1] < self.max_step_rows)

    @property
    def num_threads(self) -> int:
        return self.threads or max(1, len(physical_cores()) // self.world_size)

    @property
    def cpus(self) -> tuple[int, ...]:
        """Where this shard's threads stay: each on a core of its own if the group uses them all, anywhere if not.

        A system that is left to itself may keep two threads that wake each other on one core. But on a machine of which
        this group has a part, others may be on the cores that it would choose.
        """
        cores = physical_cores()
        if self.num_threads * self.world_size != len(cores):
            return ()
        first = self.rank * self.num_threads
        return cores[first:first + self.num_threads]

    def check(self) -> None:
        """Raises ValueError, naming the flag, for values that do not go together."""
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"--rank {self.rank}: a group of {self.world_size} has ranks 0 to {self.world_size - 1}")
        if self.world_size > 1 and not self.rendezvous:
            raise ValueError(f"--rendezvous is needed for --world-size {self.world_size}")
        if self.socket_path and (length := len(os.fsencode(self.socket_path))) > MAX_SOCKET_PATH:
            raise ValueError(f"--listen {self.listen}: the path has {length} bytes, a socket's has {MAX_SOCKET_PATH}")
        if self.socket_path and not self.socket_path.parent.is_dir():
            raise ValueError(f"--listen {self.listen}: the folder {self.socket_path.parent} does not exist")


def physical_cores() -> tuple[int, ...]:
    """One CPU of each core that this process may run on: of a core's hyperthreads the first."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    return tuple(sorted({_core(cpu): cpu for cpu in sorted(cpus, reverse=True)}.values()))


def _core(cpu: int) -> tuple[str, ...]:
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        return (topology / "physical_package_id").read_text(), (topology / "core_id").read_text()
    except OSError:
        return (str(cpu),)
