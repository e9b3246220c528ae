"""The page [Models](models.md): a row for each architecture, and how its columns came about."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from penstock.shard.models.rounding_methods import ROUNDINGS
from tests.known_checkpoints import KNOWN
from tests.models import encoders
from tests.models.measure import Found
from tests.models.quantised import METHODS
from tests.paths import ROOT

PAGE = ROOT / "docs" / "models.md"
NATIVE = "native"
NOTHING = "–"
EQUALITIES = ("batched", "chunked", "cached", "replayed", "threads")
CELLS = ("logits", "greedy", *EQUALITIES, "shards", "`--quantize`", "quantised files", "GGUF")
COLUMNS = ("family", "architecture", "by", *CELLS, "checkpoints, for example")
_SETTING = "Measured on "

_BEGINNING = f"""# Models

`python -m tests.models` writes this page from what it finds by running, in a few minutes. For each architecture, which
is what config.json names under `architectures`, it makes checkpoints of random weights with the switches that the
family has (`FAMILY_MODELS` in `tests/family_models.py`), some hundred kilobytes each, and loads them by the code that
serves. A row says what is so of all of its architecture's checkpoints; where they differ, it says what is so of the
first, and then names those that are otherwise. **No checkpoint of the Hub was loaded for this page**: the last column
has examples whose config.json names the architecture, written by hand (`tests/known_checkpoints.py`); {NOTHING} means
that none is known. A quick test demands a row for each architecture that is served, and no differing bits in any; the
numbers are as old as the page. What is so today is tested anew by `tests/shard/test_families.py`.

{_SETTING}{{setting}}.

- *by*: what computes it; `{NATIVE}` is this server's own code (`shard/models/`, `shard/layers/`).
- *logits*: the largest difference of any logit to that of transformers' own class, both in float32, after each of 60
  tokens. Logits are a few units large.
- *greedy*: two prompts are answered with the 200 tokens that transformers answers with, in float32.

Of latent attention (DeepSeek, GLM 4.7 Flash, Youtu) the cache has the keys and values of all heads, not the row that
they come of: for a token in a layer of DeepSeek V2 Lite 6,144 numbers where that row has 576, and 49,152 in one of V3.

The next are about bits, in bfloat16, of logits and of all that is sampled from them. *yes*: six requests of 1 to 70
prompt tokens, half of them sampled, have the same bits as each by itself, its prompt in one step, on one thread and one
shard.

- *batched*: all together, in shuffled rows and blocks, their prompts in pieces beside the others' steps.
- *chunked*: the longest prompt in pieces of 1, 3, 16 and 17 tokens.
- *cached*: each comes twice, and finds blocks of the first time. {NOTHING}: the model carries a state from token to
  token, so that prompts share nothing.
- *replayed*: on the way all that was computed is lost twice, with steps in flight, and comes again.
- *threads*: on two threads.
- *shards*: the numbers of shards, each a process, that have these bits, alone and batched; 1, 2 and 4 were tried. No
  number of shards has to divide a model's sizes. Over 2, 4 or 8 any inner width has these bits, and heads do where all
  shards have as many; with other numbers, or heads, the server says at start that it has other bits. It refuses, with
  the numbers that will do, to leave a shard without heads, tokens or inner width; also more shards than KV heads must
  be a multiple of these, and recurrent heads be divided.

The last are about files. Checkpoints in safetensors are what all of this was measured with.

- *`--quantize`*: what a plain checkpoint can be rounded to when it is loaded, and then has the same bits batched and
  alone. *all*: {", ".join(f"`{each}`" for each in ROUNDINGS)}.
- *quantised files*: the `quant_method`s whose files are read. For each, a file of random codes was written with its
  tensors where the family has its linears, and the logits were those of the plain numbers that the codes stand for.
  That the formats' own libraries mean the same numbers is shown on files of theirs
  (`tests/shard/weights/test_quantised_files.py`); [Quantised weights](quantisation.md) has the formats in full.
  *all*: {", ".join(f"`{each}`" for each in METHODS)}.
- *GGUF*: *yes*: a GGUF file of the checkpoint, named and ordered as llama.cpp's converter does it, has the bits of the
  plain checkpoint's logits.

"""


@dataclass(frozen=True, slots=True)
class Row:
    """One architecture: its name, what computes it, and a text for each of CELLS."""

    architecture: str
    by: str
    cells: tuple[str, ...]


def native_rows(found: Sequence[Found]) -> Iterator[Row]:
    """Yields a row for each architecture, of all checkpoints that were found to be of it."""
    ordered = sorted(found, key=lambda each: each.architecture)
    for architecture, group in groupby(ordered, lambda each: each.architecture):
        yield Row(architecture, NATIVE, _cells(list(group)))


def _cells(found: Sequence[Found]) -> tuple[str, ...]:
    def cell(text_of: Callable[[Found], str]) -> str:
        return _together({each.name: text_of(each) for each in found})

    def equality(name: str) -> str:
        return cell(lambda each: _answer(each.equalities[name]))

    return (
        f"{max(each.difference for each in found):.0e}", cell(lambda each: _answer(each.is_greedy_equal)),
        *map(equality, EQUALITIES),
        cell(lambda each: ", ".join(map(str, each.shards))),
        cell(lambda each: _listed(each.roundings, ROUNDINGS)),
        cell(lambda each: _listed(each.methods, METHODS)),
        cell(lambda each: _answer(each.has_gguf)))


def _together(texts: Mapping[str, str]) -> str:
    """Returns the first one's text, and which checkpoints have others."""
    usual = next(iter(texts.values()))
    others = {text: ", ".join(f"`{name}`" for name, its in texts.items() if its == text)
              for text in texts.values() if text != usual}
    return "; ".join([usual, *(f"{text} for {names}" for text, names in others.items())])


def _answer(is_so: bool | None) -> str:
    return NOTHING if is_so is None else "yes" if is_so else "no"


def _listed(names: Sequence[str], everything: Mapping[str, object]) -> str:
    return "all" if len(names) == len(everything) else ", ".join(f"`{name}`" for name in names) or "none"


def render(rows: Sequence[Row], of_encoders: Sequence[encoders.Row], setting: str) -> str:
    """Returns the page. setting: what it was measured on"""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *map(_line, rows)]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return _BEGINNING.format(setting=setting) + table + encoders.render(of_encoders)


def _line(row: Row) -> tuple[str, ...]:
    known = KNOWN[row.architecture]
    checkpoints = ", ".join(f"`{name}`" for name in known.checkpoints) or NOTHING
    return known.name, f"`{row.architecture}`", row.by, *row.cells, checkpoints


def parse(page: str) -> tuple[list[Row], str]:
    """Returns the rows of decoders and the setting that a page was made of."""
    setting = re.search(rf"^{_SETTING}(.*)\.$", page, re.MULTILINE)
    assert setting, "the page says what it was measured on"
    table = page.partition(encoders.HEADING)[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return [Row(architecture.strip("`"), by, tuple(cells)) for _, architecture, by, *cells, _ in lines[2:]], setting[1]
