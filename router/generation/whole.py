"""Answers that are given at once: the tokens of each, and which is the best."""

from penstock.router.engine.stream import Token
from penstock.router.generation.answers import Answers


async def tokens_of(answers: Answers) -> list[list[Token]]:
    """Wait for all answers: the tokens of each, in the order of their indices."""
    tokens: list[list[Token]] = [[] for _ in answers.each]
    async for answer, event in answers:
        tokens[answer.index].append(event.token)
    return tokens


def mean_logprob(tokens: list[Token]) -> float:
    """By which candidates are compared: not by the sum, which would favour a short answer."""
    return sum(token.logprob for token in tokens) / len(tokens)
