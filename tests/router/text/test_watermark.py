"""The detector finds the watermark of the shards, and no other; in served answers, see tests/e2e/test_watermark.py."""

import json
import math
import random
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.launcher.cli import main
from penstock.router.text import watermark
from penstock.router.text.watermark import detect, green_list
from penstock.shard.execution.watermark import Watermark
from tests.paths import DEMO_MODEL

VOCAB = 500


@pytest.mark.parametrize(("vocab_size", "gamma"), [(2, 0.5), (101, 0.25), (8192, 0.5), (128_256, 0.1), (150_001, 0.9)])
@pytest.mark.parametrize("previous", [0, 1, 71, 277, 128_000])
def test_the_green_list_is_that_of_the_shards(previous: int, vocab_size: int, gamma: float) -> None:
    """Of 277 on, the seed has more than 32 bits, and torch takes the lower ones."""
    expected = Watermark(gamma).green_list(previous, vocab_size).tolist()
    assert green_list(previous, vocab_size, gamma) == expected


def walk(dice: random.Random, num_tokens: int, gamma: float, loyalty: float) -> list[int]:
    """Tokens, of which each is from the green list with a chance of `loyalty`, and else any."""
    ids = [dice.randrange(VOCAB)]
    while len(ids) < num_tokens:
        green = green_list(ids[-1], VOCAB, gamma)
        ids.append(dice.choice(green) if dice.random() < loyalty else dice.randrange(VOCAB))
    return ids


@pytest.mark.parametrize("gamma", [0.25, 0.5])
def test_z_grows_with_the_share_of_green_tokens(gamma: float) -> None:
    dice = random.Random(5)
    none, half, every = (detect(walk(dice, 200, gamma, loyalty), VOCAB, gamma) for loyalty in (0, 0.5, 1))
    assert abs(none.z) < 3 < 4 < half.z < every.z
    assert every.num_green == every.num_tokens
    assert every.z == pytest.approx(math.sqrt(every.num_tokens * (1 - gamma) / gamma))
    assert every.p_value < half.p_value < 1e-4 < none.p_value


def test_the_z_of_unmarked_texts_is_normally_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermark, "green_list", cache(green_list))  # of which the texts share most
    dice = random.Random(6)
    found = [detect([dice.randrange(VOCAB) for _ in range(60)], VOCAB) for _ in range(100)]
    mean = sum(each.z for each in found) / 100
    assert abs(mean) < 0.3
    assert 0.7 < sum((each.z - mean) ** 2 for each in found) / 100 < 1.4
    assert sum(each.p_value < 0.5 for each in found) in range(30, 71)


def test_what_another_gamma_marked_is_not_found() -> None:
    marked = walk(random.Random(7), 300, 0.1, 1)
    assert detect(marked, VOCAB, 0.1).z > 40
    assert detect([token + 1 for token in marked[:-1]] + [0], VOCAB + 1, 0.1).z < 3, "another vocabulary"


def test_a_repeated_pair_counts_once() -> None:
    assert detect([7, 8] * 50, VOCAB).num_tokens == 2
    assert detect([7, 8, 9, 7, 8, 7], VOCAB).num_tokens == 4


@pytest.mark.parametrize(("token_ids", "gamma", "message"), [
    ([], 0.5, "fewer than two tokens"), ([3], 0.5, "fewer than two tokens"), ([3, 4], 0.001, "leaves no token")])
def test_what_says_nothing_is_an_error(token_ids: list[int], gamma: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        detect(token_ids, VOCAB, gamma)


def test_the_command_reads_a_file_or_its_input_and_prints_the_figures(tmp_path: Path) -> None:
    text = "def walk(path):\n    return [name for name in os.listdir(path)]\n"
    file = tmp_path / "text"
    file.write_text(text)
    command = ["detect-watermark", str(DEMO_MODEL)]
    plain = CliRunner().invoke(main, [*command, str(file)])
    assert plain.exit_code == 0
    words = [line.split(": ")[0] for line in plain.stdout.splitlines()]
    assert words == ["tokens counted", "green tokens", "z", "p-value"]
    as_json = CliRunner().invoke(main, [*command, "--gamma", "0.25", "--json", "-"], input=text)
    found = json.loads(as_json.stdout)
    assert found.keys() == {"num_tokens", "num_green", "z", "p_value"}
    assert plain.stdout.startswith(f"tokens counted: {found['num_tokens']}\n")


@pytest.mark.parametrize(("arguments", "message"), [
    ([str(DEMO_MODEL)], "fewer than two tokens"), (["/no/model"], "there is no directory /no/model"),
    ([str(DEMO_MODEL), "--gamma", "1"], "1.0 is not in the range 0<x<1")])
def test_the_command_says_what_is_wrong(arguments: list[str], message: str) -> None:
    run = CliRunner().invoke(main, ["detect-watermark", *arguments], input="")
    assert run.exit_code
    assert message in run.stderr
