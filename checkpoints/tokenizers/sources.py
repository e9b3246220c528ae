"""Which of its files a model's tokenizer is made of."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoints.tokenizers.settings import FILES, read_bytes

VERSION = b"2"
"""Of what is made: another one is made anew of the same files."""
TOKENIZER = "tokenizer.json"
TEKKEN, MODEL, VOCABULARY, MERGES = "tekken.json", "tokenizer.model", "vocab.json", "merges.txt"
ACCEPTED = f"{TEKKEN}, {MODEL}, tiktoken.model, *.tiktoken, or {VOCABULARY} with {MERGES}"


@dataclass(frozen=True, slots=True)
class Source:
    """The file that holds the tokens, and the one of merges if there is one."""

    path: Path
    merges: Path | None = None

    def digest(self) -> str:
        """Returns a digest of all files that the tokenizer is made of. Raises FileError."""
        found = hashlib.sha256(VERSION)
        for path in (self.path, self.merges, *(self.path.with_name(name) for name in FILES)):
            if path is not None and path.exists():
                content = read_bytes(path)
                found.update(f"{path.name} {len(content)}\n".encode() + content)
        return found.hexdigest()


def find(folder: Path) -> Source | None:
    """Returns the source of a folder's tokenizer.json: the file itself, or the files that stand in its place; None if
    it has no known ones."""
    names = (TOKENIZER, TEKKEN, MODEL, "tiktoken.model")
    for path in (*(folder / name for name in names), *sorted(folder.glob("*.tiktoken"))):
        if path.exists():
            return Source(path)
    vocabulary, merges = folder / VOCABULARY, folder / MERGES
    return Source(vocabulary, merges) if vocabulary.exists() and merges.exists() else None
