"""Texts of mixed lengths, cut out of this site's pages, and a model that takes texts of such lengths."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from tokenizers import Tokenizer

from penstock.bench.programs.root import ROOT

WINDOW = 600
"""The words of which a text is cut: enough for the longest."""
NUM_SPECIAL = 2
LENGTH_FILE = "sentence_bert_config.json"


def draw_texts(tokenizer: Tokenizer, number: int, longest: int, seed: int) -> list[str]:
    """Returns texts of up to `longest` tokens with the special ones, every length as likely as the others, but none
    without a token of its own. Raises ClickException where there are no pages to cut them from."""
    words = " ".join(file.read_text() for file in sorted((ROOT / "docs").glob("*.md"))).split()
    if len(words) <= WINDOW:
        raise click.ClickException("texts are cut out of docs/, which only a checkout of Penstock has")
    draw = random.Random(seed)
    return [_cut(tokenizer, words, draw, max(1, draw.randint(1, longest) - NUM_SPECIAL)) for _ in range(number)]


def _cut(tokenizer: Tokenizer, words: list[str], draw: random.Random, num_tokens: int) -> str:
    begin = draw.randrange(len(words) - WINDOW)
    text = " ".join(words[begin:begin + WINDOW])
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    return text[:offsets[num_tokens - 1][1]]


def whole_tokenizer(model: Path) -> Tokenizer:
    """Returns the model's tokenizer, which neither cuts texts nor fills them up."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@contextmanager
def lengthened(model: Path, longest: int) -> Iterator[Path]:
    """Yields a folder with the model whose texts may have `longest` tokens, whatever its maker proposes."""
    with TemporaryDirectory() as folder:
        made = Path(folder) / model.name
        made.mkdir()
        for file in model.iterdir():
            if file.name != LENGTH_FILE:
                (made / file.name).symlink_to(file.resolve())
        proposed = json.loads((model / LENGTH_FILE).read_text()) if (model / LENGTH_FILE).exists() else {}
        (made / LENGTH_FILE).write_text(json.dumps({**proposed, "max_seq_length": longest}))
        yield made
