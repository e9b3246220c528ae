"""Turns the token ids of one answer into whole characters."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Self

_REPLACEMENT = "\ufffd"
_MAX_HELD = 3
"""The most bytes of an incomplete UTF-8 character, and so the most U+FFFD that it shows as."""
_MAX_WINDOW = 16
"""The most tokens of the window; a text without invalid bytes needs fewer."""
NUM_CONTEXT = 5
"""How many prompt tokens are the context of the answer's first token, on which it depends whether the answer starts
with a space."""


class Detokenizer:
    """Decodes a window of the latest tokens at each push and returns what is new in its text.

    ::

        window:  context tokens | tokens whose characters are not all complete
        text:    given ........................................ | piece | held

    The context is what came out with the last complete character, because a decoder treats the first token
    of a text differently. `held` is the text's tail of U+FFFD: at most three, since they may be a character whose
    last bytes are still to come; before them nothing changes. A decoder that does change what was
    given (those with byte fallback void a character when an invalid byte follows it) makes the window start anew.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], context: Sequence[int] = ()) -> None:
        """Takes as `context` the prompt's ids, or the last `NUM_CONTEXT` of them."""
        self._decode = decode
        self._window: list[int] = []
        self._num_context = 0
        self._text = ""
        self._num_held = 0
        self._restart(list(context[-NUM_CONTEXT:]))

    def fork(self) -> Self:
        """Returns one that goes on from here by itself."""
        fork = copy(self)
        fork._window = list(self._window)
        return fork

    def push(self, token_id: int) -> str:
        """Returns the text that this token completes; empty while its last character is incomplete."""
        self._window.append(token_id)
        text = self._decode(self._window)
        if text == self._text and len(self._window) > 1 and not self._decode([token_id]):
            self._window.pop()  # an id without text must not push the context out
            return ""
        given = len(self._text) - self._num_held
        if not text.startswith(self._text[:given]):
            self._window = self._window[-1 - self._num_held:]
            self._num_context = given = 0
            text = self._decode(self._window)
        self._text = text
        tail = text[max(given, len(text) - _MAX_HELD):]
        self._num_held = len(tail) - len(tail.rstrip(_REPLACEMENT))
        piece = text[given:len(text) - self._num_held]
        if not self._num_held:
            self._restart(self._window[self._num_context:])
        elif len(self._window) > _MAX_WINDOW:
            piece += self._shorten()
        return piece

    def _restart(self, context: list[int]) -> None:
        """Starts a new window with the context; nothing is held."""
        self._window = context
        self._num_context = len(context)
        self._text = self._decode(context)
        self._num_held = 0

    def _shorten(self) -> str:
        """Drops the longest front of the window that the text of the rest does not depend on, as bytes that are no
        characters keep coming. If there is none, returns what is held.
        """
        num_given = len(self._text) - self._num_held
        for cut in range(len(self._window) - _MAX_HELD, len(self._window) - _MAX_WINDOW, -1):
            front, rest = self._decode(self._window[:cut]), self._decode(self._window[cut:])
            if len(front) <= num_given and front + rest == self._text:
                self._window, self._num_context, self._text = self._window[cut:], 0, rest
                return ""
        held = self._text[num_given:]
        self._restart(self._window[self._num_context:])
        return held
