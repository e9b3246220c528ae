"""The logprobs of an answer's tokens, as OpenAI's routes of conversations tell them."""

from typing import Any

from penstock.router.engine.stream import Token
from penstock.router.generation.float32 import shortest_float32
from penstock.router.text.tokenizer import Tokenizer


def token_logprobs(tokenizer: Tokenizer, token: Token) -> dict[str, Any]:
    """Returns the text and the logprob of a token, and those of the likeliest tokens in its place."""
    top = [_logprob(tokenizer, token_id, logprob) for token_id, logprob in token.top_logprobs]
    return {**_logprob(tokenizer, token.id, token.logprob), "top_logprobs": top}


def _logprob(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    """A token that is only a part of a character has no bytes of its own."""
    text = tokenizer.text_of(token_id)
    return {"token": text, "logprob": shortest_float32(logprob),
            "bytes": None if "\ufffd" in text else list(text.encode())}
