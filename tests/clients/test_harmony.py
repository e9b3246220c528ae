"""Answers of gpt-oss, read as openai-harmony reads them, token by token."""

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.router.chat.deltas import Content, Delta, Thinking
from penstock.router.chat.harmony_parser import HarmonyParser
from penstock.router.chat.tools.offer import Offer, Tool
from tests.clients.environments import program_of, python_of
from tests.router.chat.tools.calls import WORDS, calls_of, content_of, draw_calls, draw_tools, offer_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

READER = Path(__file__).parent / "programs" / "harmony_reader.py"
Ask = Callable[[str, Any], Any]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Asks openai-harmony, in a process of its environment."""
    python, directory = python_of("harmony"), tmp_path_factory.mktemp("vocabulary")
    ranks = json.loads(program_of("tiktoken", "tiktoken/encoders/o200k_base.json").read_text())["bpe_ranks"]
    with (directory / "o200k_base.tiktoken").open("w") as file:
        for line in ranks.splitlines():
            _, first, *tokens = line.split(" ")
            file.writelines(f"{token} {number}\n" for number, token in enumerate(tokens, int(first)))
    with subprocess.Popen([python, READER, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None
        assert run.stdout is not None

        def ask(kind: str, value: Any) -> Any:
            print(json.dumps([kind, value]), file=run.stdin, flush=True)
            return json.loads(run.stdout.readline())  # type: ignore[union-attr]

        yield ask
        run.stdin.close()


def draw_text(dice: random.Random) -> str:
    return "x" + "".join(dice.choice([*WORDS, "<|", "|>"]) for _ in range(dice.randrange(12)))


def read(parser: HarmonyParser, pieces: list[str]) -> list[Delta]:
    return [delta for piece in pieces for delta in parser.push(piece)] + parser.finish()


def thoughts_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, Thinking))


@pytest.mark.parametrize("seed", range(20))
def test_messages_that_it_writes(ask: Ask, seed: int) -> None:
    dice = random.Random(seed)
    tools = draw_tools(dice)
    thoughts = [draw_text(dice) for _ in range(dice.randrange(3))]
    contents = [draw_text(dice) for _ in range(dice.randrange(2))]
    messages = [["analysis", None, None, text] for text in thoughts]
    messages += [["commentary", None, None, text] for text in contents]
    calls = draw_calls(dice, tools, WORDS, 1) if dice.random() < 0.5 else []
    if calls:
        [(name, arguments)] = calls
        kind = dice.choice([None, "json", "<|constrain|>json"])
        messages.append(["commentary", f"functions.{name}", kind, json.dumps(arguments, ensure_ascii=False)])
    else:
        contents.append(draw_text(dice))
        messages.append(["final", None, None, contents[-1]])
    text = ask("write", messages).removeprefix("<|start|>assistant")
    told, tokens = ask("read", text)
    assert [message[-1] for message in told] == [message[-1] for message in messages]
    assert "".join(tokens) == text
    for pieces in ([text], tokens, [*text]):
        deltas = read(HarmonyParser(offer_of(tools)), pieces)
        assert thoughts_of(deltas) == "\n\n".join(thoughts)
        assert content_of(deltas) == "\n\n".join(contents)
        assert calls_of(deltas) == calls


@pytest.mark.parametrize("header", [
    "<|channel|>commentary to=functions.f <|constrain|>json", "<|channel|>commentary to=functions.f json",
    " to=functions.f<|channel|>commentary json", " to=functions.f<|channel|>commentary <|constrain|>json",
    "<|channel|>commentary to=functions.f", "<|channel|>analysis to=functions.f code", "<|channel|>final",
    "<|channel|>commentary", "<|channel|>analysis"])
def test_headers_as_models_write_them(ask: Ask, header: str) -> None:
    text = f'<|channel|>analysis<|message|>So<|end|><|start|>assistant{header}<|message|>{{"x": 1}}'
    (_, (channel, recipient, _, last)), tokens = ask("read", text)
    deltas = read(HarmonyParser(Offer((Tool("f", None, {"type": "object"}),))), tokens)
    assert calls_of(deltas) == ([("f", {"x": 1})] if recipient == "functions.f" else [])
    assert content_of(deltas) == (last if recipient is None and channel != "analysis" else "")
    assert thoughts_of(deltas) == ("So" + f"\n\n{last}" * (recipient is None and channel == "analysis"))
    assert all(isinstance(delta, Content | Thinking) for delta in deltas) == (recipient is None)
