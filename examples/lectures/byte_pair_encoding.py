"""Byte pair encoding (Gage 1994, Sennrich et al. 2016): words in a vocabulary of common pieces, learnt and used.

    python examples/lectures/byte_pair_encoding.py

Training merges the commonest pair of neighbours into a new piece, again and again. Encoding does the same merges in the
same order, so that a word that training has never seen still falls into pieces that are known. Penstock does not train:
a checkpoint's tokenizer.json has the merges, and the library `tokenizers` does them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

END = "</w>"
UNKNOWN = "<unk>"
CORPUS = {"old": 7, "older": 3, "finest": 9, "lowest": 4}
"""The words of a small text, and how often each comes."""
Pair = tuple[str, str]


def pieces_of(word: str) -> list[str]:
    """Returns the letters of a word, and a mark of its end, by which `est` at the end is another piece than amid."""
    return [*word, END]


def merge(pieces: Sequence[str], pair: Pair) -> list[str]:
    """Returns the pieces with each pair of neighbours that equals `pair` put together, from left to right."""
    merged: list[str] = []
    for piece in pieces:
        if merged and (merged[-1], piece) == pair:
            merged[-1] = merged[-1] + piece
        else:
            merged.append(piece)
    return merged


def commonest(words: Mapping[tuple[str, ...], int]) -> tuple[Pair, int]:
    """Returns the commonest pair of neighbours and how often it comes; of several the shortest, then the first."""
    counts: Counter[Pair] = Counter()
    for pieces, count in words.items():
        for pair in pairwise(pieces):
            counts[pair] += count
    pair = max(counts, key=lambda pair: (counts[pair], -len(pair[0] + pair[1])), default=("", ""))
    return pair, counts[pair]


def train(words: Mapping[tuple[str, ...], int], most: int) -> list[Pair]:
    """Returns at most so many merges, in the order in which they were learnt; none of a pair that comes only once."""
    merges: list[Pair] = []
    while len(merges) < most:
        pair, count = commonest(words)
        if count < 2:
            break
        merges.append(pair)
        words = {tuple(merge(pieces, pair)): count for pieces, count in words.items()}
    return merges


def encode(word: str, merges: Sequence[Pair], letters: set[str]) -> list[str]:
    """Returns the pieces of a word. Letters that training has not seen become `UNKNOWN`; a vocabulary that begins with
    the 256 bytes has none."""
    pieces = [piece if piece in letters else UNKNOWN for piece in pieces_of(word)]
    for pair in merges:
        pieces = merge(pieces, pair)
    return pieces


def decode(pieces: Sequence[str]) -> str:
    """Returns the words that pieces were made of, with a space between them."""
    return "".join(pieces).replace(END, " ").rstrip()


def main() -> None:
    words = {tuple(pieces_of(word)): count for word, count in CORPUS.items()}
    letters = {piece for pieces in words for piece in pieces}
    print(f"{sum(words.values())} words, so {END} comes {sum(words.values())} times; {len(letters)} pieces at first")
    merges = train(words, 5)
    for pair in merges:
        print(f"merge {pair[0]:>4} and {pair[1]:<4} into {pair[0] + pair[1]}")
    for word in ("old", "finest", "oldest", "wurst"):
        pieces = encode(word, merges, letters)
        print(f"{word:>7} -> {' '.join(pieces):24} -> {decode(pieces)}")

    text: Sequence[str] = list("aaabdaaabac")
    print("".join(text))
    for pair, name in zip(train({tuple(text): 1}, 3), "ZYX", strict=True):
        text = merge(text, pair)
        print(" ".join(text), f"   {name} = {pair[0]} {pair[1]}")


if __name__ == "__main__":
    main()
