"""Times the parsers of answers, token by token."""

import time

from tokenizers import Tokenizer

from penstock.bench.programs.root import DEMO_MODEL
from penstock.bench.turns.agent import Step
from penstock.router.chat.answer_form import AnswerForm
from penstock.router.chat.thinking_format import named_format
from penstock.router.chat.tools import families

TEXT = "The quick brown fox jumps over the lazy dog, and then it does what it likes. " * 40
ROUNDS = 9


def parser_seconds() -> dict[str, float]:
    """Returns the seconds that a token takes more than without a parser, by what the answer is."""
    hermes = families.named_format("hermes", "")
    texts = {"text that may be a call": (AnswerForm(hermes), TEXT),
             "a call": (AnswerForm(hermes), Step("write_file", {"path": "a", "text": TEXT}, "").text),
             "thoughts": (AnswerForm(thinking=named_format("qwen3"), is_thinking=True), TEXT)}
    tokenizer = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    found = {}
    for kind, (form, text) in texts.items():
        pieces = [tokenizer.decode([token_id]) for token_id in tokenizer.encode(text).ids]
        found[kind] = _seconds(form, pieces) - _seconds(AnswerForm(), pieces)
    return found


def _seconds(form: AnswerForm, pieces: list[str]) -> float:
    """Returns the least seconds of a token in some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        parser = form.parser()
        begin = time.perf_counter()
        for piece in pieces:
            parser.push(piece)
        rounds.append(time.perf_counter() - begin)
    return min(rounds) / len(pieces)
