"""Texts of call formats as parts of a grammar in Lark's notation."""

import re
from collections.abc import Iterator, Mapping, Sequence

import orjson

from penstock.router.chat.tools.call_format import FROM_ID, HERE, ID, NUMBER, TO_ID
from penstock.router.chat.tools.schemas import without_operators

ANY_TEXT = r"/(.|\n)*/"
_HOLES = {ID: "/[a-zA-Z0-9]{9}/", NUMBER: "/(0|[1-9][0-9]{0,5})/", FROM_ID: "", TO_ID: "", HERE: ""}


class Lark:
    """Writes texts as grammars demand them: a token that grammars know by its id alone is demanded so. Has the rules of
    what is used more than once."""

    def __init__(self, mark_ids: Mapping[str, int]) -> None:
        self._mark_ids = mark_ids
        self._names: dict[tuple[str, str], str] = {}
        self._defined: dict[str, str] = {}
        marks = sorted(mark_ids, key=len, reverse=True)
        self._parts = re.compile("|".join([*map(re.escape, marks), f"[{''.join(_HOLES)}]"]))

    def text(self, text: str) -> str:
        """Returns the expression of a text, which may have holes for ids; nothing if it is empty."""
        return " ".join(self._expressions(text))

    def until(self, terminal: str, close: str, pad: str = "", follows: Sequence[str] = ()) -> str:
        """Returns the rule of a text of this terminal up to the first `close`. `pad` is white space before it, where
        that is no such token. The text has no `close` with one of `follows` behind it, by which a reader would take it
        for the end."""
        if close in self._mark_ids or pad:
            terminal = self.terminal(terminal + self.without(close, follows))
        if close in self._mark_ids:
            return self.rule(f"{terminal} {self.text(close)}")
        return self.rule(f"{terminal} {quoted(pad + close)}", "[lazy]")

    def rule(self, expression: str, attributes: str = "") -> str:
        """Returns the name of the rule of an expression, which is one for all that are equal."""
        return self._name("rule_", attributes, expression)

    def terminal(self, expression: str) -> str:
        """Returns the name of the terminal of a regular expression."""
        return self._name("TEXT_", "", expression)

    def reserved(self) -> str:
        """Returns the name of a rule that is defined later, by `define`: one that has itself in it."""
        name = f"later_{len(self._defined)}"
        self.define(name, "")
        return name

    def define(self, name: str, expression: str) -> None:
        """Defines the rule of this name."""
        self._defined[name] = expression

    @property
    def rules(self) -> list[str]:
        """All rules and terminals."""
        return [f"{name}{attributes}: {expression}" for (attributes, expression), name in self._names.items()] + [
            f"{name}: {expression}" for name, expression in self._defined.items()]

    def _name(self, prefix: str, attributes: str, expression: str) -> str:
        return self._names.setdefault((attributes, expression), f"{prefix}{len(self._names)}")

    def without(self, close: str, follows: Sequence[str] = ()) -> str:
        """Returns the further condition on a text: not to have `close` in it, with one of `follows` behind it."""
        behind = rf"\s*({'|'.join(map(regex, follows))})" if follows else ""
        return f" & ~/(.|\\n)*{regex(close)}{behind}(.|\\n)*/"

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
