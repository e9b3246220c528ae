"""Follows an answer through its thinking, which its grammar leaves alone, and ends it at its budget."""

from collections.abc import Collection, Sequence
from copy import copy
from enum import Enum, auto
from functools import cached_property

from penstock.router.grammar.matcher import Grammar, GrammarError, Matcher, allows, masks_along
from penstock.router.grammar.spec import ThinkingRule

_MOST_BLANKS = 2
"""How many tokens of white space may come between the thinking and an answer that has a form. Models write some."""


class _Place(Enum):
    """Where the next token stands."""

    BEGIN = auto()
    """Where the thinking may begin, or the answer."""
    THINKING = auto()
    BEHIND = auto()
    """Directly behind the thinking, where white space may come."""
    ANSWER = auto()


class Words:
    """The texts of a model's tokens, as masks of those that the thinking's rules speak of."""

    def __init__(self, tokens: Sequence[bytes], num_bytes: int, eos_token_ids: Collection[int]) -> None:
        """`num_bytes` is the length of a mask."""
        self.tokens = tokens
        self.num_bytes = num_bytes
        self.num_bits = 8 * num_bytes
        self._eos_token_ids = eos_token_ids
        self._beyond: dict[bytes, dict[int, int]] = {}

    def text(self, token_id: int) -> bytes:
        """Returns the text of a token; none of one that only the model has."""
        return self.tokens[token_id] if token_id < len(self.tokens) else b""

    def only(self, token_id: int) -> bytes:
        """Returns the mask of one token."""
        return (1 << token_id).to_bytes(self.num_bytes, "little")

    def all_but(self, bits: int) -> bytes:
        """Returns the mask of all tokens but those of `bits`."""
        return (~bits & ((1 << self.num_bits) - 1)).to_bytes(self.num_bytes, "little")

    @cached_property
    def everything(self) -> bytes:
        """The mask of all tokens."""
        return b"\xff" * self.num_bytes

    @cached_property
    def ends(self) -> int:
        """The tokens that end an answer, as bits."""
        return sum(1 << token_id for token_id in self._eos_token_ids)

    @cached_property
    def all_but_ends(self) -> bytes:
        """The mask of all tokens that do not end an answer."""
        return self.all_but(self.ends)

    @cached_property
    def blank(self) -> int:
        """The tokens of white space alone, as bits."""
        return sum(1 << token_id for token_id, text in enumerate(self.tokens) if text.isspace())

    def beyond(self, mark: bytes) -> dict[int, int]:
        """Returns which tokens, as bits, spell the rest of the mark and more than white space behind it, by how many of
        the mark's bytes have come."""
        found = self._beyond.get(mark)
        if found is None:
            found = self._beyond[mark] = {}
            for token_id, text in enumerate(self.tokens):
                if mark[-1:] in text:
                    for number in range(len(mark)):
                        _, is_whole, rest = (mark[:number] + text).partition(mark)
                        if is_whole and rest.strip():
                            found[number] = found.get(number, 0) | 1 << token_id
        return found


class ThinkingGrammar:
    """The rule of an answer's thinking, and the grammar of the answer behind it, if there is one; as `Grammar`.

    Where there is a grammar the answer does not end within the thinking.
    """

    def __init__(self, rule: ThinkingRule, behind: Grammar | None, words: Words) -> None:
        self.rule = rule
        self.behind = behind
        self.words = words
        self.begin, self.end = rule.begin.encode(), rule.end.encode()
        self.beyond = {} if behind is None else words.beyond(self.end)

    @property
    def num_free(self) -> int:
        if self.behind is not None or self.rule.budget is None:
            return 0
        return self.rule.budget + (not self.rule.is_open)  # the opening mark is a token at least

    def start(self) -> "ThinkingMatcher":
        return ThinkingMatcher(self)


class ThinkingMatcher:
    """Holds the state of one answer in its thinking, or behind it, as `Matcher`."""

    __slots__ = ("_answer", "_grammar", "_num_blanks", "_num_end_ids", "_num_tokens", "_path", "_place", "_tail")

    def __init__(self, grammar: ThinkingGrammar) -> None:
        self._grammar = grammar
        self._place = _Place.THINKING if grammar.rule.is_open else _Place.BEGIN
        self._tail = b""
        """The last of the text, in which a mark may have begun."""
        self._num_tokens = 0
        """The number of tokens behind the opening mark."""
        self._num_blanks = 0
        self._num_end_ids = 0
        """How many of the closing mark's tokens the last ones are."""
        self._path: int | None = 0
        """How many of the opening mark's tokens have come; None if others have."""
        self._answer: Matcher | None = None
        """The matcher of the answer behind the thinking, or where it may have begun without any."""
        if self._place is _Place.BEGIN and grammar.behind is not None:
            self._answer = grammar.behind.start()

    def push(self, token_id: int) -> None:
        match self._place:
            case _Place.BEGIN:
                self._push_first(token_id)
            case _Place.THINKING:
                self._push_thought(token_id)
            case _Place.BEHIND:
                self._push_behind(token_id)
            case _Place.ANSWER:
                if self._answer is not None:
                    self._answer.push(token_id)

    def mask(self) -> bytes | None:
        grammar, words = self._grammar, self._grammar.words
        if self._place is _Place.THINKING:
            if self._must_end:
                return words.only(grammar.rule.end_ids[self._num_end_ids])
            if grammar.behind is None:
                return None
            beyond = self._beyond()
            return words.all_but(words.ends | beyond) if beyond else words.all_but_ends
        mask = None if self._answer is None else self._answer.mask()
        more = 0
        if self._place is _Place.BEGIN and self._path is not None:
            more = 1 << grammar.rule.begin_ids[self._path]
            if self._answer is None and grammar.behind is not None:
                return more.to_bytes(words.num_bytes, "little")
        elif self._place is _Place.BEHIND:
            more = words.blank
        if mask is None or not more:
            return mask
        return (int.from_bytes(mask, "little") | more).to_bytes(words.num_bytes, "little")

    def masks(self, drafts: Sequence[int] = ()) -> bytes | None:
        if self._place is _Place.ANSWER:
            return None if self._answer is None else self._answer.masks(drafts)
        words = self._grammar.words
        return masks_along(self, drafts, words.everything, words.ends)

    def copy(self) -> "ThinkingMatcher":
        copied = copy(self)
        copied._answer = None if self._answer is None else self._answer.copy()
        return copied

    def forced(self, most: int, takes_longest: bool = True) -> list[int]:
        if self._place is _Place.THINKING:
            return [*self._grammar.rule.end_ids[self._num_end_ids:][:most]] if self._must_end else []
        if self._place is not _Place.ANSWER or self._answer is None:
            return []
        return self._answer.forced(most, takes_longest)

    @property
    def is_complete(self) -> bool:
        return self._place is _Place.ANSWER and self._answer is not None and self._answer.is_complete

    @property
    def _must_end(self) -> bool:
        budget = self._grammar.rule.budget
        return budget is not None and self._num_tokens >= budget

    def _push_first(self, token_id: int) -> None:
        """Takes a token where it is not known yet if the answer thinks."""
        begin, ids = self._grammar.begin, self._grammar.rule.begin_ids
        text = (self._tail + self._grammar.words.text(token_id)).lstrip()
        if text.startswith(begin):
            self._place, self._answer, self._tail = _Place.THINKING, None, b""
            self._read_thought(text[len(begin):])
            return
        if not begin.startswith(text):
            self._place = _Place.ANSWER
        elif text:
            self._path = None if self._path is None or ids[self._path] != token_id else self._path + 1
            self._path = None if self._path == len(ids) else self._path
        self._tail = text
        if self._answer is not None:
            if self._place is _Place.ANSWER or self._takes(token_id):
                self._answer.push(token_id)
            else:
                self._answer = None
        elif self._place is _Place.ANSWER and self._grammar.behind is not None:
            raise GrammarError("the answer begins neither with the mark of its thinking nor as its form does")

    def _push_thought(self, token_id: int) -> None:
        ids = self._grammar.rule.end_ids
        self._num_tokens += 1
        if ids[self._num_end_ids] == token_id:
            self._num_end_ids += 1
        else:
            self._num_end_ids = int(ids[0] == token_id)
        self._read_thought(self._grammar.words.text(token_id), is_end=self._num_end_ids == len(ids))

    def _push_behind(self, token_id: int) -> None:
        """Takes a token behind the thinking: white space that the answer could not begin with is no part of it."""
        if self._answer is not None and self._is_blank(token_id) and not self._takes(token_id):
            self._num_blanks += 1
            if self._num_blanks < _MOST_BLANKS:
                return
        elif self._answer is not None:
            self._answer.push(token_id)
        self._place = _Place.ANSWER

    def _read_thought(self, text: bytes, is_end: bool = False) -> None:
        """Looks for the closing mark in the next text of the thinking; `is_end` tells that the mark's tokens came."""
        end = self._grammar.end
        _, is_found, rest = (self._tail + text).partition(end)
        if not is_found and not is_end:
            self._tail = (self._tail + text)[-(len(end) - 1):]
            return
        self._place = _Place.BEHIND
        if self._grammar.behind is not None:
            self._answer = self._grammar.behind.start()
            if rest.strip():
                raise GrammarError("the answer begins within the token that ends its thinking")

    def _beyond(self) -> int:
        """Returns the tokens, as bits, that would begin the answer within the closing mark's last token."""
        end, found = self._grammar.end, 0
        for number, tokens in self._grammar.beyond.items():
            if self._tail.endswith(end[:number]):
                found |= tokens
        return found

    def _takes(self, token_id: int) -> bool:
        """Tells whether the answer's grammar allows the token."""
        assert self._answer is not None
        mask = self._answer.mask()
        return mask is None or allows(mask, token_id)

    def _is_blank(self, token_id: int) -> bool:
        return self._grammar.words.text(token_id).isspace()
