"""What a token's id goes through to become text for the client."""

from dataclasses import dataclass

from router.request import Request
from router.text.detokenizer import NUM_CONTEXT, Detokenizer
from router.text.stopping import StopMatcher
from router.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Piece:
    """A token's text; `is_stop` if a stop string ends with it, and the text is cut there."""

    text: str
    is_special: bool
    is_stop: bool


class TextPath:
    """Detokenizer and stop strings of one request."""

    def __init__(self, tokenizer: Tokenizer, request: Request) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer.decode, request.input_ids[-NUM_CONTEXT:])
        self._stop = StopMatcher(request.stop)
        self._texts: list[str] = []

    def push(self, token_id: int) -> Piece:
        """Take the next generated token. Stop strings see special tokens too."""
        text = self._detokenizer.push(token_id)
        is_special = self._tokenizer.is_special(token_id)
        end = self._stop.push(text)
        text = text[:end]
        if not is_special:
            self._texts.append(text)
        return Piece(text, is_special, end is not None)

    @property
    def text(self) -> str:
        """The answer so far: the pieces that are not special tokens, joined."""
        return "".join(self._texts)
