"""The tokens of parts of texts, kept for texts that have the same parts: a turn of a chat begins as the one before.

A tokenizer first finds its added tokens in a text, and what lies between two of them becomes tokens by itself. So a
text may be cut before an added token, and the tokens of the parts are those of the text, as long as each part is cut
off in every text that has it, whatever stands around it. Added tokens of which that is certain are marks:

- No other added token may hide it, by beginning before it and ending within or behind it.
- It takes no space before it (`lstrip`), does not ask for its neighbours (`single_word`), and is looked for in the text
  as it is (not `normalized`). It begins with no character of a word, since others may ask for theirs.

Some tokenizers treat a text's beginning in a way of its own; a part that begins with a mark does not show it, for its
mark is a token. Tokens that are added to every text are no part of this.
"""

import string
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import islice, pairwise
from sys import getsizeof

import tokenizers

Ids = tuple[int, ...]
Marks = dict[int, str]
"""The ids and contents of added tokens."""

MOST_BYTES = 64 << 20
"""The memory that all parts take at the most."""
MOST_MARKS = 8
"""How many marks are looked for. A template has two or three; a text is searched for each of them."""
MOST_PARTS = 10_000
"""Of more parts a text is not cut into, for each is work for the event loop; conversations have hundreds."""
_ENTRY_BYTES = 200
_FIRST = frozenset(string.punctuation) - {"_"}


class KnownParts:
    """Keeps the tokens of the parts that were used last. Texts are cut at the marks that were found in them last."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, most_bytes: int = MOST_BYTES) -> None:
        added = tokenizer.get_added_tokens_decoder()
        self._contents = [token.content for token in added.values()]
        self._candidates = {
            token_id: token.content for token_id, token in added.items()
            if token.content[:1] in _FIRST and not (token.lstrip or token.single_word or token.normalized)}
        self._are_marks: dict[str, bool] = {}
        self._marks: Marks = {}
        self._parts: OrderedDict[str, Ids] = OrderedDict()
        self._most_bytes = most_bytes
        self._num_bytes = 0

    def cut(self, text: str) -> list[str]:
        """Returns the parts of a text, in their order; one alone if they would be too many."""
        return [text] if _has_many(text, self._marks) else _cut(text, self._marks)

    def get(self, part: str) -> Ids | None:
        """Returns the tokens of a part that `cut` returned, if they are known."""
        ids = self._parts.get(part)
        if ids is not None:
            self._parts.move_to_end(part)
        return ids

    def put(self, parts: Mapping[str, Ids]) -> None:
        """Keeps the tokens of parts that `cut` returned, and forgets those that were not used for longest."""
        for part, ids in parts.items():
            if part not in self._parts:
                self._parts[part] = ids
                self._num_bytes += _size(part, ids)
        while self._num_bytes > self._most_bytes:
            self._num_bytes -= _size(*self._parts.popitem(last=False))

    def read(self, text: str, ids: Ids) -> tuple[Marks, dict[str, Ids]]:
        """Returns the marks to cut at from now on, those of a text before others, and the tokens of its parts. May run
        in a thread."""
        found = {token_id: content for token_id in self._candidates.keys() & set(ids)
                 if self._is_mark(content := self._candidates[token_id])}
        marks = dict(islice((found | self._marks).items(), MOST_MARKS))
        if _has_many(text, marks):
            return marks, {}
        parts = _cut(text, marks)
        starts = [place for place, token_id in enumerate(ids) if token_id in marks]
        if not text.startswith(tuple(marks.values())):
            starts.insert(0, 0)
        if len(starts) != len(parts):  # some other text has become a mark's token
            return marks, {}
        return marks, {part: ids[start:stop] for part, (start, stop) in
                       zip(parts, pairwise([*starts, len(ids)]), strict=True)}

    def learn(self, marks: Marks, parts: Mapping[str, Ids]) -> None:
        """Takes in the result of `read`."""
        self._marks = marks
        self.put(parts)

    def _is_mark(self, content: str) -> bool:
        """Tells whether no other added token hides this one: none has it within, or ends as it begins."""
        known = self._are_marks.get(content)
        if known is None:
            beginnings = tuple(content[:stop] for stop in range(1, len(content)))
            is_hidden = any((content in other and content != other) or other[1:].endswith(beginnings)
                            for other in self._contents)
            known = self._are_marks[content] = self._contents.count(content) == 1 and not is_hidden
        return known


def _has_many(text: str, marks: Marks) -> bool:
    return sum(map(text.count, marks.values())) > MOST_PARTS


def _cut(text: str, marks: Marks) -> list[str]:
    places = {0, len(text)}
    for mark in marks.values():
        place = text.find(mark)
        while place >= 0:
            places.add(place)
            place = text.find(mark, place + 1)
    return [text[start:stop] for start, stop in pairwise(sorted(places))]


def joined(pieces: Iterable[Ids]) -> Ids:
    """Returns the tokens of all pieces in one tuple."""
    ids: list[int] = []
    for piece in pieces:
        ids += piece
    return tuple(ids)


def _size(part: str, ids: Ids) -> int:
    return getsizeof(part) + 40 * len(ids) + _ENTRY_BYTES
