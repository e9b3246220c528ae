"""The text of an answer, as stop strings see it."""

from copy import copy
from typing import Self

from penstock.router.engine.request import Request
from penstock.router.text.detokenizer import NUM_CONTEXT, Detokenizer
from penstock.router.text.stopping import Match, StopMatcher
from penstock.router.text.tokenizer import Tokenizer


class StopText:
    """Turns the tokens of an answer into whole characters, and finds the stop string that ends it.

    Stop strings see special tokens, too. One that completes in one of the first `min_tokens` tokens is no end.
    """

    def __init__(self, tokenizer: Tokenizer, request: Request) -> None:
        self._detokenizer = Detokenizer(tokenizer.decode, request.input_ids[-NUM_CONTEXT:])
        self._stop = StopMatcher(request.stop)
        self._num_unstopped = request.sampling.min_tokens

    def push(self, token_id: int) -> tuple[str, Match | None]:
        """Takes the next token; returns its text, and the stop string that completes in it, if one does."""
        text = self._detokenizer.push(token_id)
        if not self._num_unstopped:
            return text, self._stop.push(text)
        self._num_unstopped -= 1
        self._stop.skip(text)
        return text, None

    @property
    def num_held(self) -> int:
        """How many characters at the end of the text may be the beginning of a stop string."""
        return self._stop.num_held

    def fork(self) -> Self:
        """Returns one that goes on from here by itself."""
        fork = copy(self)
        fork._detokenizer, fork._stop = self._detokenizer.fork(), self._stop.fork()
        return fork
