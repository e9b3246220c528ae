"""Which of several answers to a prompt is the best."""

from collections.abc import Sequence

from penstock.router.engine.stream import Token
from penstock.router.generation.answer import Answer


def best_first(answers: Sequence[Answer], tokens: Sequence[list[Token]]) -> list[Answer]:
    """Returns the answers to a prompt, the best first: as a beam search has found them, or else by their tokens."""
    found = [answer for answer in answers if answer.ending is not None]
    if found[0].request.beams is not None:
        return found
    return sorted(found, key=lambda answer: mean_logprob(tokens[answer.index]), reverse=True)


def mean_logprob(tokens: list[Token]) -> float:
    """Returns the score by which candidates are compared: a mean, for a sum would favour a short answer."""
    return sum(token.logprob for token in tokens) / len(tokens)
