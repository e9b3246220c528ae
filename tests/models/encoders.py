"""What the checkpoints of encoders are, found out by running them, and their part of the page [Models](models.md)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.models.reading import read_model_config
from penstock.shard.models.rounding_methods import ROUNDINGS
from tests.encoder_models import CONTEXT, ENCODER_MODELS, VOCAB, make_encoder
from tests.known_checkpoints import KNOWN_ENCODERS
from tests.shard.equalities import two_threads
from tests.shard.ranks import make_config
from tests.shard.whole_texts import Text, on_ranks, run_whole, states_of, texts, their_states

GROUPS = (2, 4)                          # shards
LENGTHS = (19, 30, 1, 2, CONTEXT - 4, 64)
HEADING = "## Encoders"
CELLS = ("vectors", "batched", "threads", "shards", "`--quantize`")
COLUMNS = ("family", "architectures", *CELLS, "checkpoints, for example")
TEXT = f"""
{HEADING}

The rows of encoders (`ENCODER_MODELS` in `tests/encoder_models.py`) are about the vectors of all tokens, behind the
last block. Each architecture's name ends with `Model`, `ForMaskedLM` or `ForSequenceClassification`.

- *vectors*: the largest difference of any number to that of transformers' own class, both in float32.
- *batched*, *threads*, *shards*, *`--quantize`*: six texts of 1 to {LENGTHS[4]} tokens, some of them pairs, have the
  bits of each by itself, as above.

"""


@dataclass(frozen=True, slots=True)
class Found:
    """What is so of one checkpoint."""

    family: str                          # what its architecture begins with
    difference: float                    # the largest of any number to transformers'
    is_batched: bool
    is_threaded: bool
    shards: tuple[int, ...]
    roundings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A family's row, a text for each of CELLS."""

    family: str
    cells: tuple[str, ...]


def measure(names: Sequence[str] = tuple(ENCODER_MODELS)) -> list[Found]:
    """Measures checkpoints of ENCODER_MODELS."""
    return [_measured(name) for name in tqdm(names, desc="Encoders", unit="model")]


def rows(found: Sequence[Found]) -> Iterator[Row]:
    """Yields a row for each family, of the least that is so of all its checkpoints."""
    for family, group in groupby(sorted(found, key=lambda each: each.family), lambda each: each.family):
        own = list(group)
        shards = [size for size in (1, *GROUPS) if all(size in each.shards for each in own)]
        roundings = [name for name in ROUNDINGS if all(name in each.roundings for each in own)]
        yield Row(family, (
            f"{max(each.difference for each in own):.0e}", _answer(all(each.is_batched for each in own)),
            _answer(all(each.is_threaded for each in own)), ", ".join(map(str, shards)),
            "all" if len(roundings) == len(ROUNDINGS) else ", ".join(f"`{name}`" for name in roundings) or "none"))


def render(found: Sequence[Row]) -> str:
    """Returns their part of the page."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *map(_line, found)]
    return TEXT + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def parse(page: str) -> list[Row]:
    """Returns the rows that a page has."""
    lines = [line.strip("| ").split(" | ") for line in page.partition(HEADING)[2].splitlines() if line.startswith("|")]
    return [Row(names.strip("`").removesuffix("…"), tuple(cells)) for _, names, *cells, _ in lines[2:]]


def _line(row: Row) -> tuple[str, ...]:
    known = KNOWN_ENCODERS[row.family]
    return known.name, f"`{row.family}…`", *row.cells, ", ".join(f"`{name}`" for name in known.checkpoints)


def _answer(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _measured(name: str) -> Found:
    given = texts(LENGTHS, VOCAB)
    with TemporaryDirectory() as made:
        path = make_encoder(Path(made) / "model", name)
        architecture, config = read_model_config(path).architecture, make_config(path, "bfloat16")
        alone = _alone(config, given)
        with two_threads():
            threaded = _alone(config, given)
        return Found(
            next(family for family in KNOWN_ENCODERS if architecture.startswith(family)), _difference(path, given),
            _together(config, given) == alone, threaded == alone,
            (1, *(size for size in GROUPS if on_ranks([config], [given], Path(made), size) == [alone])),
            tuple(each for each in ROUNDINGS if _is_rounded(replace(config, quantize=each), given[:3])))


def _alone(config: ShardConfig, given: Sequence[Text]) -> list[bytes]:
    return run_whole(Executor(config, Group()), [[text] for text in given])


def _together(config: ShardConfig, given: Sequence[Text]) -> list[bytes]:
    return run_whole(Executor(config, Group()), [given])


def _is_rounded(config: ShardConfig, given: Sequence[Text]) -> bool:
    return _together(config, given) == _alone(config, given)


def _difference(path: Path, given: Sequence[Text]) -> float:
    found, expected = _alone(make_config(path, "float32"), given), their_states(path, given)
    return max(float((states_of(own, theirs.shape[1]) - theirs).abs().max())
               for own, theirs in zip(found, expected, strict=True))
