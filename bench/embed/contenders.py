"""Contenders that compute vectors of texts: Penstock's servers and the programs beside them, all of one model."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from penstock.bench.embed.asking import OPENAI, TEI, Route, Vectors, ask_all
from penstock.bench.embed.runs import ENCODE
from penstock.bench.programs.children import free_port
from penstock.bench.programs.peers import LlamaCpp, ResidentEngine, ServerCommand, own_server
from penstock.bench.programs.root import ROOT
from penstock.bench.server.running import running

ONNX, LLAMA = "ONNX Runtime", "llama.cpp's server"
BATCHES = (8, 16, 32, 64)
"""The numbers of texts in a call or a request of which each contender gets the best."""
CONNECTIONS = 4
FORMATS = {"float32": ("--dtype", "float32"), "bfloat16": ("--dtype", "bfloat16"),
           "int8": ("--dtype", "float32", "--quantize", "int8")}
"""The flags of a server that computes in a format."""


class Contender(Protocol):
    """A program that embeds texts; between two calls it must leave the processor alone."""

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str], batch: int) -> tuple[float, Vectors]:
        """Returns the seconds, and a vector for each text."""


@dataclass(frozen=True)
class Asked:
    """A server, asked through one of its routes."""

    name: str
    port: int
    route: Route
    connections: int = CONNECTIONS

    def embed(self, texts: Sequence[str], batch: int) -> tuple[float, Vectors]:
        return ask_all(self.port, self.route, texts, batch, self.connections)

    def alone(self) -> "Asked":
        """Returns the same server, of which one client asks one thing after another."""
        return replace(self, connections=1)


@dataclass(frozen=True)
class Called:
    """A library in a process of its own."""

    name: str
    engine: ResidentEngine

    def embed(self, texts: Sequence[str], batch: int) -> tuple[float, Vectors]:
        seconds, vectors = self.engine.ask({"texts": list(texts), "batch": batch})
        return seconds, np.frombuffer(vectors, np.float32).reshape(len(texts), -1)


@dataclass(frozen=True, slots=True)
class Peers:
    """Where the peers are that are wanted."""

    environment: Path | None
    llama: LlamaCpp | None


def own_name(number_format: str, route: Route) -> str:
    return f"Penstock {number_format}, {route.path}"


@contextmanager
def started(
    model: Path, formats: Sequence[str], peers: Peers, threads: int, longest: int
) -> Iterator[list[Contender]]:
    """Yields all contenders, ready: those of Penstock first."""
    with ExitStack() as stack:
        found: list[Contender] = []
        for number_format in formats:
            port = free_port()
            flags = [*FORMATS[number_format], "--threads", str(threads), "--no-request-logs",
                     "--max-client-batch-size", str(max(BATCHES))]
            stack.enter_context(running(own_server(model, port, flags), port))
            found += [Asked(own_name(number_format, route), port, route) for route in (OPENAI, TEI)]
        if peers.environment:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for name, program, more in ((ENCODE, "by_sentence_transformers.py", []),
                                        (ONNX, "by_onnxruntime.py", [str(longest)])):
                engine = ResidentEngine(
                    name, _python(peers.environment, program), [[str(model), str(threads), *more]], folder,
                    {"HF_HUB_OFFLINE": "1", "PYTHONPATH": "", "OMP_NUM_THREADS": str(threads)})
                stack.callback(engine.end)
                found.append(Called(name, engine))
        if peers.llama:
            port = free_port()
            stack.enter_context(running(_llama_server(peers.llama, port, longest), port))
            found.append(Asked(LLAMA, port, OPENAI))
        yield found


def _python(environment: Path, program: str) -> list[str]:
    return [str(environment / "bin" / "python"), "-P", str(ROOT / "penstock" / "bench" / "embed" / program)]


def _llama_server(llama: LlamaCpp, port: int, longest: int) -> ServerCommand:
    """A text is computed in one piece, so that a step must have room for several of them."""
    slots, step = 16, 2048
    return llama.server(port, ["--embedding", "--pooling", "mean", "-np", str(slots), "-c", str(slots * longest),
                               "-b", str(step), "-ub", str(step), "-tb", str(llama.num_threads)])
