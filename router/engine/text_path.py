"""The path of a token's id through the detokenizer and the stop strings to the client's text."""

from typing import NamedTuple

from penstock.router.engine.request import Request
from penstock.router.engine.stop_text import StopText
from penstock.router.text.stopping import HeldText
from penstock.router.text.tokenizer import Tokenizer


class Piece(NamedTuple):
    """The text that a token yields. If there is a `stop`, this stop string ends the answer here."""

    text: str
    is_special: bool
    stop: str | None


class TextPath:
    """Runs the detokenizer and the stop strings of one request.

    If the request keeps stop strings, each token yields its own text, also a special one if that is to be told. If it
    cuts before them, tokens yield what is certain to be part of the answer: what may be the beginning of a stop string
    is held until it is known to be none, and comes with a later token. What is held when the last token has come is
    only in `text`.
    A token of `stop_token_ids` has no text then, and completes no stop string.
    """

    def __init__(self, tokenizer: Tokenizer, request: Request) -> None:
        self._tokenizer = tokenizer
        self.stops = StopText(tokenizer, request)
        self._keep_stop = request.keep_stop
        self._tells_special = request.tells_special
        self._shown_ids = request.shown_ids
        self._cut_ids = frozenset() if request.keep_stop else request.stop_token_ids
        self._texts: list[str] = []
        self._held = HeldText()

    def push(self, token_id: int) -> Piece:
        """Takes the next generated token and returns its text."""
        is_special = self._tokenizer.is_special(token_id) and token_id not in self._shown_ids
        if token_id in self._cut_ids:  # it ends the answer
            return Piece("", is_special, None)
        text, match = self.stops.push(token_id)
        if self._keep_stop:
            if match is not None:
                text = text[:match.end]
            answer = "" if is_special else text
            if not self._tells_special:
                text = answer
        else:
            num_kept = self.stops.num_held if match is None else len(text) - match.start
            answer = text = self._held.push(text, is_special, num_kept)
            if match is not None:
                self._held.clear()
        self._texts.append(answer)
        return Piece(text, is_special, None if match is None else match.stop)

    @property
    def text(self) -> str:
        """The answer so far, without special tokens and with what is held back."""
        return "".join(self._texts) + self._held.text
