"""Other engines and servers that a benchmark runs beside Penstock, where they are installed: vLLM and llama.cpp."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from penstock.bench.programs.children import Child, last_lines
from penstock.bench.programs.root import ROOT
from penstock.bench.programs.trial import Result, Split, Trial

Command = TypeVar("Command", bound=Callable[..., None])
DIRECTORY = click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path)
CHECKPOINT = click.Path(exists=True, resolve_path=True, path_type=Path)
"""A directory, or a GGUF file."""
MAX_SEQUENCES = 64                       # vLLM's --max-num-seqs
MAX_LENGTH = 2048


class Engine(Protocol):
    """An engine that the benchmark measures; between two trials it must leave the processor alone."""

    @property
    def name(self) -> str: ...

    def run(self, trial: Trial) -> Result | None:
        """Returns None if this engine has nothing to show for such a trial."""

    def cpu_seconds(self) -> float:
        """Returns the processor time so far of its processes that stay between two trials."""

    def end(self) -> None: ...


@dataclass(frozen=True)
class ServerCommand:
    """A server that answers /health, /v1/models and /v1/completions."""

    name: str
    command: list[str]
    environment: dict[str, str]


class ResidentEngine:
    """An engine that child processes hold and run: one, or the ranks of a group."""

    def __init__(
        self, name: str, command: list[str], arguments: Sequence[list[str]], folder: Path, environment: dict[str, str]
    ):
        """Starts a child for each of `arguments`, which it is given behind the number of a file descriptor."""
        self.name = name
        self._ranks = [_Rank(name, command, own, folder, environment) for own in arguments]
        self._receive()

    def run(self, trial: Trial) -> Result | None:
        tokens, seconds, *rest = self.ask(asdict(trial))
        return Result(tokens, seconds, *(Split(*parts) for parts in rest if parts))

    def ask(self, message: Any) -> Any:
        """Sends a message to all children, and returns the first one's answer once all have answered."""
        for rank in self._ranks:
            rank.connection.send(message)
        return self._receive()

    def cpu_seconds(self) -> float:
        return sum(rank.child.cpu_seconds() for rank in self._ranks)

    def end(self) -> None:
        for rank in self._ranks:
            rank.connection.close()
        for rank in self._ranks:
            rank.child.end()

    def _receive(self) -> Any:
        """Returns the first child's message, once all children have sent theirs."""
        try:
            first, *_ = [rank.receive() for rank in self._ranks]
        except click.ClickException:
            self.end()
            raise
        return first


class _Rank:
    """One child, and the connection to it."""

    def __init__(
        self, name: str, command: list[str], arguments: list[str], folder: Path, environment: dict[str, str]
    ) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            fd = theirs.fileno()
            self.child = Child(name, [*command, str(fd), *arguments], folder, environment, pass_fds=[fd])

    def receive(self) -> Any:
        """Returns the child's message. Raises ClickException if it ends instead."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionError):
            raise self.child.failure("ended") from None


@dataclass(frozen=True)
class Vllm:
    """vLLM for processors, in a virtual environment of its own."""

    folder: Path
    num_threads: int

    def server(self, model: Path, port: int) -> ServerCommand:
        command = [str(self._program("vllm")), "serve", str(model), "--port", str(port), "--host", "127.0.0.1",
                   "--dtype", "bfloat16", "--max-model-len", str(MAX_LENGTH), "--max-num-seqs", str(MAX_SEQUENCES),
                   "--no-enable-prefix-caching", "--gpu-memory-utilization", "0.5"]
        return ServerCommand("vLLM", command, self._environment())

    def engine(self, model: Path, folder: Path) -> Engine:
        return self._child("engine/vllm_engine.py", folder, str(model))

    def llm(self, model: Path, folder: Path, batch: int, length: int) -> ResidentEngine:
        """Starts an `LLM` that answers up to `batch` prompts at once, in a context of `length` tokens."""
        return self._child("offline/by_vllm.py", folder, str(model), str(batch), str(length))

    def _child(self, program: str, folder: Path, *arguments: str) -> ResidentEngine:
        command = [str(self._program("python")), "-P", str(ROOT / "penstock" / "bench" / program)]
        return ResidentEngine("vLLM", command, [[*arguments]], folder, self._environment())

    def _program(self, name: str) -> Path:
        return _existing(self.folder / "bin" / name, "--vllm")

    def _environment(self) -> dict[str, str]:
        # Where PYTHONPATH names this repository, its packages would be taken for others of their names.
        return {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "4", "PYTHONPATH": "",
                "VLLM_CPU_OMP_THREADS_BIND": f"0-{self.num_threads - 1}"}


@dataclass(frozen=True)
class LlamaCpp:
    """llama.cpp's programs, and the model in its format. Its engine's trials are processes of their own."""

    folder: Path
    gguf: Path
    num_threads: int
    name: str = "llama.cpp"

    def server(self, port: int, flags: Sequence[str] = ()) -> ServerCommand:
        command = [*self._command("llama-server"), "--host", "127.0.0.1", "--port", str(port), "-c", "16384",
                   "-np", "32", "--no-webui", *flags]
        return ServerCommand(self.name, command, {})

    def run(self, trial: Trial) -> Result | None:
        """Its decode steps are those of random tokens: it does not sample."""
        if trial.is_sampled:
            return None
        if trial.new == 1:
            [found] = json.loads(self._output("llama-bench", "-p", trial.prompt, "-n", 0, "-r", 1, "-o", "json"))
            return Result(trial.prompt, found["samples_ns"][0] / 1e9)
        room = max(8192, trial.sequences * (trial.prompt + trial.new))
        output = self._output(
            "llama-batched-bench", "-c", room, "-b", 2048, "-ub", 512, "-npp", trial.prompt, "-ntg", trial.new,
            "-npl", trial.sequences, "--output-format", "jsonl")
        [found] = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        return Result(trial.sequences * trial.new, found["t_tg"])

    def cpu_seconds(self) -> float:
        return 0.0

    def end(self) -> None:
        pass

    def _output(self, program: str, *arguments: object) -> str:
        command = [*self._command(program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise click.ClickException(f"{program} ended with {done.returncode}; its last lines:\n"
                                       f"{last_lines(done.stderr)}")
        return done.stdout

    def _command(self, program: str) -> list[str]:
        return [str(_existing(self.folder / program, "--llama")), "-m", str(self.gguf), "-t", str(self.num_threads)]


def own_engine(
    name: str, model: Path, num_threads: int, folder: Path, quantize: str | None, num_shards: int = 1,
    checkout: Path = ROOT, **more: str,
) -> Engine:
    """model: a directory; quantize: what its weights are rounded to, if they are. Each shard has so many threads.
    Another checkout computes with the Python of its own environment. `more` are settings of the shards."""
    python = sys.executable if checkout == ROOT else str(checkout / ".venv/bin/python")
    command = [python, "-m", "penstock.bench.engine.own"]
    setting = {"model": str(model), "threads": num_threads, "quantize": quantize, "world_size": num_shards,
               "rendezvous": f"file://{folder}/{name.replace(' ', '-')}", **more}
    ranks = [[json.dumps({**setting, "rank": rank})] for rank in range(num_shards)]
    return ResidentEngine(name, command, ranks, folder, {"PYTHONPATH": str(checkout)})


def own_server(model: Path, port: int, flags: Sequence[str]) -> ServerCommand:
    launcher = str(Path(sys.executable).with_name("text-generation-launcher"))
    command = [launcher, "--model-id", str(model), "--hostname", "127.0.0.1", "--port", str(port), *flags]
    return ServerCommand("Penstock", command, {})


def peer_options(command: Command) -> Command:
    """Adds the options that name the installed peers."""
    return vllm_option(llama_options(command))


def vllm_option(command: Command) -> Command:
    """Adds the option that names vLLM alone."""
    return click.option("--vllm", type=DIRECTORY, envvar="VLLM", help="The virtual environment of vLLM.")(command)


def llama_options(command: Command) -> Command:
    """Adds the options that name llama.cpp alone."""
    llama = click.option("--llama", type=DIRECTORY, envvar="LLAMA", help="The folder of llama.cpp's programs.")
    gguf = click.option("--gguf", type=FILE, envvar="GGUF", help="The same model for llama.cpp, unless it is GGUF.")
    return llama(gguf(command))


def find_peers(
    vllm: Path | None, llama: Path | None, gguf: Path | None, num_threads: int
) -> tuple[Vllm | None, LlamaCpp | None]:
    if gguf and not llama:
        raise click.UsageError("--gguf is for --llama, which reads it")
    if llama and not gguf:
        raise click.UsageError("--llama needs --gguf, which llama.cpp's convert_hf_to_gguf.py makes of the model")
    return (Vllm(vllm, num_threads) if vllm else None,
            LlamaCpp(llama, gguf, num_threads) if llama and gguf else None)


def _existing(program: Path, option: str) -> Path:
    if not program.exists():
        raise click.UsageError(f"{option}: there is no {program}")
    return program
