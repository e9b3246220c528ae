"""Random texts of an exact length in tokens, which share nothing that a server could have cached."""

import random
import re
from pathlib import Path

import click
from tokenizers import Tokenizer

WORD = re.compile(r" [A-Za-z]{2,}")
ATTEMPTS = 100


class PromptWriter:
    """Writes prompts for the model in a folder; the same ones for the same seed."""

    def __init__(self, model: Path, length: int, seed: int = 0) -> None:
        """Raises ClickException if there is no tokenizer with plain words."""
        file = model / "tokenizer.json"
        if not file.exists():
            raise click.ClickException(f"{file} does not exist")
        self._tokenizer = Tokenizer.from_file(str(file))
        self._length = length
        self._random = random.Random(seed)
        texts = (self._tokenizer.decode([number], skip_special_tokens=False)
                 for number in range(self._tokenizer.get_vocab_size()))
        self._words = [text for text in texts if WORD.fullmatch(text)]
        if not self._words:
            raise click.ClickException(f"{file}: no token is a space and a word")

    def write(self) -> str:
        """Raises ClickException if no text of this length is found."""
        words = self._random.choices(self._words, k=self._length)
        for _ in range(ATTEMPTS):
            surplus = len(self._tokenizer.encode("".join(words)).ids) - self._length
            if surplus == 0:
                return "".join(words)
            words = words[:-surplus] if surplus > 0 else [*words, *self._random.choices(self._words, k=-surplus)]
        raise click.ClickException(f"no random text has exactly {self._length} tokens")
