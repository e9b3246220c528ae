"""`penstock bench`: the benchmarks as commands, each imported when it runs."""

import click

from penstock.launcher.lazy_group import LazyGroup

KERNELS = {
    "attention": ("penstock.bench.kernels.attention:main", "The compiled attention beside torch's."),
    "encoder": ("penstock.bench.kernels.encoder:main", "All blocks of an encoder, beside torch's."),
    "linear": ("penstock.bench.kernels.linear:main", "All matrices of a Llama beside torch's and oneDNN's."),
    "sampling": ("penstock.bench.kernels.sampling:main", "The compiled sampling beside the reference."),
}


@click.group(cls=LazyGroup, lazy={
    "serve": ("penstock.bench.load.command:main", "Send load to a server at any URL and measure its answers."),
    "load": ("penstock.bench.load.command:main", "The same as serve."),
    "engine": ("penstock.bench.engine.command:main", "Measure the engine without HTTP, beside vLLM and llama.cpp."),
    "offline": ("penstock.bench.offline.command:main", "Measure LLM.generate beside the engine and transformers."),
    "embed": ("penstock.bench.embed.command:main", "Measure vectors of texts beside sentence-transformers and others."),
    "loads": ("penstock.bench.server.loads:main", "Time the loads of a model, beside streams of another one."),
    "hits": ("penstock.bench.load.hits:main", "Time answers that a server has kept."),
    "deadlines": ("penstock.bench.load.deadlines:main", "Count deadlines that are promised, refused and missed."),
    "plan": ("penstock.bench.planning.check:main", "Compare the plans of `penstock plan` with a server."),
    "turns": ("penstock.bench.turns.command:main", "Measure the cost of an agent's turns in the router."),
    "kernels": ("penstock.bench.cli:kernels", "Measure single kernels of the processor's."),
})
def main() -> None:
    """Measure a server, the engine or kernels. docs/benchmarks.md says how to read the figures."""


@click.group(cls=LazyGroup, lazy=KERNELS)
def kernels() -> None:
    """Measure single kernels of the processor's."""
