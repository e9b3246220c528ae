"""The page `docs/fallback.md`: a row for each class, and how its columns came about."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.models.table import NOTHING
from tests.paths import ROOT

PAGE = ROOT / "docs" / "fallback.md"
YES, NO = "yes", "no"
COLUMNS = ("class", "equal", "run with", "bits", "replaced", "why not equal")
_SETTING = "Measured on "

_BEGINNING = f"""# What transformers computes

Architectures that are not native are computed by transformers' own classes, with our ops in the place of their modules
(`shard/fallback/`). `python -m tests.fallback` writes this page from what it finds by running, in a few minutes. For
each class that transformers has for causal language models (`MODEL_FOR_CAUSAL_LM_MAPPING_NAMES`), it makes a checkpoint
of random weights, some hundred kilobytes large, of its own configuration's defaults with small sizes and a layer of
each kind (`tests/fallback/`). A class that several model types name counts once. Those that are native, too, are run by
transformers here, as `--model-impl transformers` has it. **No checkpoint of the Hub was loaded for this page.**

**{{equal}} of {{number}} classes ({{share:.1%}}) generate the tokens that transformers' `generate` does.**

{_SETTING}{{setting}}.

- *equal*: two prompts, of 7 and 30 tokens, are answered together, greedily, in float32, with the 100 tokens that
  transformers' `generate` answers each with; the end of the text is ignored.
- *run with*: the paged cache, as native models are; or, sequence by sequence, a cache of the class's own, which takes
  tokens in chunks, or one by one after the first chunk; or nothing is kept, and all tokens are computed again.
- *bits*: the two, batched and in pieces, have the bits that each has by itself, and so have three others whole, in
  pieces and token by token, which is what a start tries. Where it says *{NO}*, tokens were equal, but logits differed
  in their last bits, which may turn a token elsewhere.
- *replaced*: in the place of how many modules of transformers' ours stand.

A slow test (`tests/fallback/test_classes.py`) demands today that those be equal which are so here.

"""


@dataclass(frozen=True, slots=True)
class Row:
    """One class: its name, and a text for each other column."""

    name: str
    equal: str
    way: str = NOTHING
    bits: str = NOTHING
    replaced: str = NOTHING
    reason: str = NOTHING


def render(rows: Sequence[Row], setting: str) -> str:
    """Returns the page. setting: what it was measured on"""
    equal = sum(row.equal == YES for row in rows)
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(
        (f"`{row.name}`", row.equal, row.way, row.bits, row.replaced, row.reason) for row in rows)]
    beginning = _BEGINNING.format(equal=equal, number=len(rows), share=equal / len(rows), setting=setting)
    return beginning + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def parse(page: str) -> tuple[list[Row], str]:
    """Returns the rows and the setting that a page was made of."""
    setting = re.search(rf"^{_SETTING}(.*)\.$", page, re.MULTILINE)
    assert setting, "the page says what it was measured on"
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    return [Row(name.strip("`"), *others) for name, *others in lines[2:]], setting[1]
