"""How much of the engine's speed `LLM.generate` has, and how it compares with vLLM's and transformers' `generate`.

Many random prompts are answered at once, greedily, and no answer ends early. Beside them stands the time that the
engine alone takes for as many batches of the same size, one after the other, as `penstock bench engine` measures it:
the scheduler, tokens on their way and texts are then the difference. vLLM's `LLM.generate` answers the same prompts, as
many at once. transformers generates one such batch, whose time is counted as often. All take turns within every round,
and a ratio is the median of the rounds' ratios, for a shared machine is now faster, now slower.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import click

from penstock.bench.engine.own import FIRST_ID
from penstock.bench.engine.sequences import random_prompts
from penstock.bench.programs.children import exit_on_sigterm
from penstock.bench.programs.model import existing_model
from penstock.bench.programs.peers import CHECKPOINT, Engine, ResidentEngine, Vllm, own_engine, vllm_option
from penstock.bench.programs.root import ROOT
from penstock.bench.programs.trial import Trial
from penstock.offline.llm import LLM
from penstock.offline.sampling_params import SamplingParams
from penstock.shard.config import physical_cores

KV_MEMORY = 1 << 30
OFFLINE, ENGINE, VLLM, TRANSFORMERS = "LLM.generate", "the engine alone", "vLLM", "transformers"


class Contenders:
    """The model by all contenders, in processes that wait for their turns."""

    def __init__(
        self, llm: LLM, engine: Engine, vllm: ResidentEngine | None, transformers: Engine | None, trial: Trial,
        number: int,
    ) -> None:
        self._llm = llm
        self._engine = engine
        self._vllm = vllm
        self._transformers = transformers
        self._trial = trial
        self._number = number
        self._seed = 0

    def round(self) -> dict[str, float]:
        """Returns the seconds that each takes for all prompts."""
        num_batches, prompts = self._number / self._trial.sequences, self._prompts()
        found = {OFFLINE: self._by_llm(prompts), ENGINE: num_batches * self._by_engine()}
        if self._vllm is not None:
            found[VLLM] = self._vllm.ask({"prompts": prompts, "new": self._trial.new})
        if self._transformers is not None:
            found[TRANSFORMERS] = num_batches * _seconds(self._transformers, self._trial)
        return found

    def _prompts(self) -> list[list[int]]:
        """Returns prompts that no round has had: those known already would be in the prefix cache."""
        self._seed += 1
        return [prompt.tolist() for prompt in random_prompts(
            self._number, self._trial.prompt, self._llm.get_tokenizer().vocab_size, FIRST_ID, self._seed)]

    def _by_llm(self, prompts: list[list[int]]) -> float:
        params = SamplingParams(temperature=0, max_tokens=self._trial.new, ignore_eos=True)
        start = time.perf_counter()
        self._llm.generate(prompts, params, use_tqdm=False)
        return time.perf_counter() - start

    def _by_engine(self) -> float:
        """Returns the seconds for one batch: its prompts, and its answers behind their first tokens."""
        trial = self._trial
        return _seconds(self._engine, Trial("prompts", trial.sequences, trial.prompt, 1)) + _seconds(
            self._engine, trial)


def _seconds(engine: Engine, trial: Trial) -> float:
    result = engine.run(trial)
    assert result is not None
    return result.seconds


@contextmanager
def started(
    model: Path, trial: Trial, number: int, threads: int, vllm: Path | None, transformers: bool
) -> Iterator[Contenders]:
    """Yields the contenders, ready."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        llm = stack.enter_context(LLM(str(model), max_num_seqs=trial.sequences, threads=threads, kv_memory=KV_MEMORY))
        engine = own_engine("engine", model, threads, folder, None)
        stack.callback(engine.end)
        other = peer = None
        if vllm is not None:
            print("vLLM starts, which can take minutes the first time")
            other = Vllm(vllm, threads).llm(model, folder, trial.sequences, trial.prompt + trial.new)
            stack.callback(other.end)
        if transformers:
            peer = ResidentEngine(TRANSFORMERS, [sys.executable, "-m", "penstock.bench.offline.by_transformers"],
                                  [[str(model), str(threads)]], folder, {"PYTHONPATH": str(ROOT)})
            stack.callback(peer.end)
        yield Contenders(llm, engine, other, peer, trial, number)


@click.command(help=__doc__)
@click.argument("model", type=CHECKPOINT, envvar="MODEL_ID", required=False)
@click.option("--threads", default=lambda: len(physical_cores()), show_default="physical cores", type=int,
              envvar="THREADS")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--prompts", "number", type=click.IntRange(1), default=256, show_default=True, help="How many there are.")
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="How many are answered at once.")
@click.option("--prompt", type=click.IntRange(1), default=128, show_default=True, help="Tokens of each.")
@click.option("--new", type=click.IntRange(2), default=64, show_default=True, help="Tokens of each answer.")
@click.option("--transformers", is_flag=True, help="Measure transformers' generate, too.")
@vllm_option
def main(
    model: Path | None, threads: int, rounds: int, number: int, batch: int, prompt: int, new: int, transformers: bool,
    vllm: Path | None,
) -> None:
    exit_on_sigterm()
    model = existing_model(model)
    if model.is_file():
        raise click.UsageError(f"{model} is a file: name a directory, which all contenders read")
    with started(model, Trial("answers", batch, prompt, new), number, threads, vllm, transformers) as contenders:
        contenders.round()                       # where all that happens once happens
        found = [contenders.round() for _ in range(rounds)]
    tokens = number * new
    for name in found[0]:
        rates = [tokens / each[name] for each in found]
        print(f"{name}: {median(rates):.1f} tokens/s ({min(rates):.1f} to {max(rates):.1f})")
    for name in list(found[0])[1:]:
        print(f"{OFFLINE} ÷ {name}: {median(each[name] / each[OFFLINE] for each in found):.3f}")


if __name__ == "__main__":
    main()
