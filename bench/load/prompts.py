"""Prompts to send: random ones of a given length, or those of a file."""

import itertools
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import click
from tokenizers import Tokenizer

from penstock.bench.load.apis import Prompt

WORD = re.compile(r" [A-Za-z]{2,}")
ATTEMPTS = 100
_TEXT = (
    "about after again air all also always and another answer any are around ask away back because been before "
    "began best better big book both but call came can city come could country day did different does down each "
    "earth end even every example eyes face family far father feet few find first follow food form found four from "
    "get give good great group grow had half hand hard has have head help her here high him his home house how idea "
    "important into just keep kind know land large last later learn leave left letter life light like line list "
    "little live long look made make many may mean men might more most mother much must name near need never new "
    "next night not now number off often old once one only open other our out over own page paper part people place "
    "plant play point read real right river run said same saw school sea second see sentence set she should show "
    "side small some soon sound spell stand start state still stop story study such take talk tell than that the "
    "their them then there these they thing think this those thought three through time together too took tree "
    "turn two under until use very walk want was watch water way well went were what when where which while white "
    "who why will with without word work world would write year you young your"
)
COMMON_WORDS = [f" {word}" for word in _TEXT.split()]
"""Words with a space before, each of them one token for nearly every tokenizer of English."""


class PromptSource(Protocol):
    """Where prompts come from; `description` says it in a few words."""

    description: str

    def take(self, number: int, output_tokens: int | None) -> list[Prompt]:
        """Returns the next prompts, with answers of so many tokens; None leaves the length to the source."""


class RandomPrompts:
    """Random words that share nothing a server could have cached; the same ones for the same seed.

    With a tokenizer a prompt has exactly `length` tokens, not counting those that the server puts in front. Without
    one it has as many common words, of which nearly every tokenizer makes a token each.
    """

    DEFAULT_OUTPUT = 128

    def __init__(self, length: int, seed: int = 0, tokenizer: Tokenizer | None = None) -> None:
        """Takes the length in tokens. Raises ClickException if the tokenizer knows no plain words."""
        self._length = length
        self._random = random.Random(seed)
        self._tokenizer = tokenizer
        self._words = plain_words(tokenizer) if tokenizer else COMMON_WORDS
        self.description = f"random, {length} tokens" if tokenizer else f"random, {length} common words"

    def take(self, number: int, output_tokens: int | None = None) -> list[Prompt]:
        return [Prompt(self._write(), output_tokens or self.DEFAULT_OUTPUT) for _ in range(number)]

    def _write(self) -> str:
        """Returns a prompt. Raises ClickException if no text of this length is found."""
        words = self._random.choices(self._words, k=self._length)
        for _ in range(ATTEMPTS):
            surplus = self._surplus(words)
            if surplus == 0:
                return "".join(words)
            words = words[:-surplus] if surplus > 0 else [*words, *self._random.choices(self._words, k=-surplus)]
        raise click.ClickException(f"no random text has exactly {self._length} tokens")

    def _surplus(self, words: list[str]) -> int:
        if self._tokenizer is None:
            return 0
        return len(self._tokenizer.encode("".join(words)).ids) - self._length


class FilePrompts:
    """The prompts of a file in an order that follows from the seed, from the start again when all were taken."""

    DEFAULT_OUTPUT = 128

    def __init__(self, file: Path, seed: int = 0, tokenizer: Tokenizer | None = None) -> None:
        """Reads the file. Raises ClickException if it has no prompts."""
        found = list(read_prompts(file, tokenizer))
        if not found:
            raise click.ClickException(f"{file} has no prompts")
        random.Random(seed).shuffle(found)
        self._endless = itertools.cycle(found)
        self.description = f"{len(found)} of {file.name}"

    def take(self, number: int, output_tokens: int | None = None) -> list[Prompt]:
        return [Prompt(text, output_tokens or length or self.DEFAULT_OUTPUT)
                for text, length in itertools.islice(self._endless, number)]


def read_prompts(file: Path, tokenizer: Tokenizer | None = None) -> Iterator[tuple[str, int | None]]:
    """Yields prompts, and how long their answers are if the file says so. The file's ending says what it is.

    .json: conversations as ShareGPT's, of which the first turn is the prompt and the second the answer, whose length is
    known with a tokenizer. .jsonl: in each line a string, or an object with `prompt` (or `text`, or `inputs`) and,
    optionally, `output_tokens`. Otherwise: a prompt in each line. Raises ClickException for what is none of that.
    """
    try:
        text = file.read_text(encoding="utf-8")
        lines = (line for line in text.split("\n") if line.strip())  # a string of JSON may have other separators
        if file.suffix == ".json":
            yield from (turns for item in json.loads(text) if (turns := _conversation(item, tokenizer)))
        elif file.suffix == ".jsonl":
            yield from (_line(json.loads(line)) for line in lines)
        else:
            yield from ((line, None) for line in lines)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise click.ClickException(f"{file} has something that is no prompt: {type(error).__name__}: {error}") from None


def _line(item: Any) -> tuple[str, int | None]:
    if isinstance(item, str):
        return item, None
    for key in ("prompt", "text", "inputs"):
        if key in item:
            return str(item[key]), item.get("output_tokens")
    raise LookupError(f"a line without `prompt`: {str(item)[:100]}")


def _conversation(item: dict[str, Any], tokenizer: Tokenizer | None) -> tuple[str, int | None] | None:
    """Returns the first turn and the answer's length, if known; None if no user began it or nobody answered."""
    turns = [(turn.get("from") or turn["role"], turn.get("value") or turn.get("content") or "")
             for turn in item.get("conversations") or item["messages"]]
    if len(turns) < 2 or turns[0][0] not in ("human", "user") or not turns[0][1] or not turns[1][1]:
        return None
    return turns[0][1], len(tokenizer.encode(turns[1][1]).ids) if tokenizer else None


def load_tokenizer(name: str) -> Tokenizer:
    """Loads the tokenizer of a folder, a file or a model on the Hugging Face Hub. Raises ClickException if it can't."""
    path = Path(name).expanduser()
    try:
        if path.exists():
            return Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
        return Tokenizer.from_pretrained(name)
    except Exception as error:                       # tokenizers raises nothing more special
        raise click.ClickException(f"there is no tokenizer in {name}: {error}") from None


def plain_words(tokenizer: Tokenizer) -> list[str]:
    """Returns the tokens that are a space and a word. Raises ClickException if there are none."""
    texts = (tokenizer.decode([number], skip_special_tokens=False) for number in range(tokenizer.get_vocab_size()))
    words = [text for text in texts if WORD.fullmatch(text)]
    if not words:
        raise click.ClickException("no token of the tokenizer is a space and a word")
    return words
