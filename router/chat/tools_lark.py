"""Texts of call formats as parts of a grammar in Lark's notation."""

import re
from collections.abc import Iterator, Mapping

import orjson

from penstock.router.chat.tools_format import FROM_ID, HERE, ID, NUMBER, TO_ID
from penstock.router.chat.tools_schemas import without_operators

ANY_TEXT = r"/(.|\n)*/"
_HOLES = {ID: "/[a-zA-Z0-9]{9}/", NUMBER: "/(0|[1-9][0-9]{0,5})/", FROM_ID: "", TO_ID: "", HERE: ""}


class Lark:
    """Writes texts as grammars demand them: a token that grammars know by its id alone is demanded so."""

    def __init__(self, mark_ids: Mapping[str, int]) -> None:
        self._mark_ids = mark_ids
        marks = sorted(mark_ids, key=len, reverse=True)
        self._parts = re.compile("|".join([*map(re.escape, marks), f"[{''.join(_HOLES)}]"]))

    def text(self, text: str) -> str:
        """Returns the expression of a text, which may have holes for ids; nothing if it is empty."""
        return " ".join(self._expressions(text))

    def until(self, name: str, text: str, close: str, pad: str = "") -> tuple[str, str]:
        """Returns the expression of what matches the regular expression `text` up to the first `close`, and the rule
        that defines it as `name`. `pad` is white space before it, where that is no such token."""
        if close in self._mark_ids:
            return name, f"{name}: {text} {self.text(close)}"
        return name, f"{name}[lazy]: {text} {quoted(pad + close)}"

    def without(self, close: str) -> str:
        """Returns the further condition on a text up to `close`: not to have that in it."""
        return "" if close in self._mark_ids else f" & ~/(.|\\n)*{regex(close)}(.|\\n)*/"

    def _expressions(self, text: str) -> Iterator[str]:
        place = 0
        for found in self._parts.finditer(text):
            if place < found.start():
                yield quoted(text[place:found.start()])
            expression = f"<[{self._mark_ids[found[0]]}]>" if found[0] in self._mark_ids else _HOLES[found[0]]
            if expression:
                yield expression
            place = found.end()
        if place < len(text):
            yield quoted(text[place:])


def quoted(text: str) -> str:
    """Returns a text as a string of Lark's."""
    return without_operators(orjson.dumps(text).decode())


def regex(text: str) -> str:
    """Returns a regular expression, as it stands between slashes, of one text."""
    return re.sub(r"[^\w\s]", lambda found: f"\\x{{{ord(found[0]):x}}}", text).replace("\n", "\\n")
