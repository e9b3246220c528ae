"""How many texts a second become vectors, how soon a short one does, and how near vectors are to their originals.

Penstock's server computes in each of FORMATS and is asked over HTTP, by OpenAI's route and by TEI's. Beside it stand
sentence-transformers' `encode` and ONNX Runtime, as fastembed uses it, in the environment PEERS, and llama.cpp's
server; all of them have the same model, in float32, and the same number of threads. The texts have 1 to LONGEST tokens,
each length as likely, and are cut out of this documentation. Every contender first looks for the number of texts in a
call at which it is fastest. Then all take turns within every round, and a ratio is the median of the rounds' ratios.

MODEL is a directory of a model of sentence-transformers. At last all vectors of other texts are compared with those of
`encode`.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from penstock.bench.embed.asking import Vectors
from penstock.bench.embed.contenders import BATCHES, FORMATS, Asked, Contender, Peers, started
from penstock.bench.embed.runs import ENCODE, Run, nearness, percentiles, table, to_json
from penstock.bench.embed.texts import draw_texts, lengthened, whole_tokenizer
from penstock.bench.programs import record
from penstock.bench.programs.children import exit_on_sigterm
from penstock.bench.programs.peers import DIRECTORY, find_peers, llama_options
from penstock.shard.config import physical_cores

NUM_SHORT = 300
SHORT = "How do I keep a server's answers the same?"


class Words(click.ParamType[list[str]]):
    """Names of number formats, with commas between them."""

    name = "names"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        names = value.split(",")
        if unknown := [name for name in names if name not in FORMATS]:
            self.fail(f"{unknown[0]!r} is none of {', '.join(FORMATS)}", param, ctx)
        return names


def best_batch(contender: Contender, texts: Sequence[str]) -> int:
    """Returns the number of texts in a call of which the contender is fastest; what happens once happens here."""
    contender.embed(texts[:max(BATCHES)], BATCHES[0])
    return min(BATCHES, key=lambda batch: contender.embed(texts, batch)[0])


def short_times(contender: Contender) -> list[float]:
    """Returns the seconds that each of many short texts took, one after the other over one connection."""
    alone = contender.alone() if isinstance(contender, Asked) else contender
    return [seconds for _ in range(NUM_SHORT) for seconds, _ in [alone.embed([SHORT], 1)]]


def measure(contenders: Sequence[Contender], texts: Sequence[str], rounds: int) -> dict[str, Run]:
    """Returns the speeds of all contenders."""
    runs = {contender.name: Run(best_batch(contender, texts)) for contender in contenders}
    for number in range(rounds):
        click.echo(f"round {number + 1} of {rounds}", err=True)
        for contender in contenders:
            seconds, _ = contender.embed(texts, runs[contender.name].batch)
            runs[contender.name].rates.append(len(texts) / seconds)
    for contender in contenders:
        runs[contender.name].short_ms = percentiles(short_times(contender))
    return runs


def compare(contenders: Sequence[Contender], texts: Sequence[str], runs: dict[str, Run]) -> None:
    """Compares the vectors of all with those of sentence-transformers, if this is among them."""
    def vectors(contender: Contender) -> Vectors:
        return contender.embed(texts, runs[contender.name].batch)[1]

    originals = [vectors(contender) for contender in contenders if contender.name == ENCODE]
    for contender in contenders if originals else ():
        if contender.name != ENCODE:
            runs[contender.name].cosine = nearness(vectors(contender), originals[0])


@click.command(help=__doc__)
@click.argument("model", type=DIRECTORY, envvar="MODEL_ID")
@click.option("--threads", default=lambda: len(physical_cores()), show_default="physical cores", type=int,
              envvar="THREADS", help="Threads of each contender.")
@click.option("--formats", type=Words(), default=",".join(FORMATS), show_default=True,
              help="What Penstock computes in.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--texts", "number", type=click.IntRange(64), default=200, show_default=True, help="Texts of a round.")
@click.option("--longest", type=click.IntRange(3), default=512, show_default=True, help="Tokens of the longest.")
@click.option("--compared", type=click.IntRange(1), default=1000, show_default=True,
              help="Texts whose vectors are compared with those of encode.")
@click.option("--seed", default=1, show_default=True, help="What the texts are drawn from.")
@click.option("--peers", type=DIRECTORY, envvar="PEERS", help="The virtual environment of sentence-transformers and "
              "onnxruntime; if MODEL has no onnx/model.onnx, also of onnx, by which it is exported.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              help="Write all figures here, as bench/results has them.")
@llama_options
def main(
    model: Path, threads: int, formats: list[str], rounds: int, number: int, longest: int, compared: int, seed: int,
    peers: Path | None, json_file: Path | None, llama: Path | None, gguf: Path | None,
) -> None:
    exit_on_sigterm()
    _, llama_peer = find_peers(None, llama, gguf, threads)
    tokenizer = whole_tokenizer(model)
    texts = draw_texts(tokenizer, number, longest, seed)
    with (lengthened(model, longest) as folder,
          started(folder, formats, Peers(peers, llama_peer), threads, longest) as contenders):
        runs = measure(contenders, texts, rounds)
        compare(contenders, draw_texts(tokenizer, compared, longest, seed + 1), runs)
    for cells in table(runs, ENCODE):
        print("\t".join(cells))
    if json_file:
        record.write(json_file, "embeddings", f"{number} texts of 1 to {longest} tokens, cosines of {compared}, "
                     f"{threads} threads each", to_json(runs))


if __name__ == "__main__":
    main()
