"""The lectures print what they say, and their numbers hold."""

import re
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
import torch
from tokenizers import Tokenizer

from penstock.launcher.cli import main as penstock
from penstock.launcher.options import OPTIONS
from tests.paths import ROOT

LECTURES = ROOT / "examples/lectures"
SCRIPTS = sorted(LECTURES.glob("*.py"))
OF_A_SERVER = {"resume_to_json"}
"""Those that ask a server, which tests/e2e/test_lectures.py has."""
PAGE = (ROOT / "docs/lectures.md").read_text()


def lecture(name: str, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Returns what a lecture defines."""
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, name)
    return SimpleNamespace(**runpy.run_path(str(LECTURES / f"{name}.py"), run_name=name))


@pytest.mark.parametrize("file", [file for file in SCRIPTS if file.stem not in OF_A_SERVER], ids=lambda file: file.stem)
def test_it_runs_and_its_command_is_its_own(file: Path, capsys: pytest.CaptureFixture[str],
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(file)])
    runpy.run_path(str(file), run_name="__main__")
    assert capsys.readouterr().out
    assert f"python examples/lectures/{file.name}" in file.read_text()


def test_the_page_names_every_lecture_and_no_place_that_is_not_there() -> None:
    named = set(re.findall(r"`([\w/]+\.\w+|[\w/]+/)`", PAGE))
    assert {name for name in named if "/" not in name} == {file.name for file in SCRIPTS}
    assert len(named) > 50
    assert [name for name in named if "/" in name and not (ROOT / name).exists()] == []


def test_the_page_names_commands_that_are_there() -> None:
    modules = set(re.findall(r"python -m ([\w.]+)", PAGE))
    assert modules
    assert [name for name in modules if find_spec(name) is None] == []
    for words in set(re.findall(r"`penstock ([^`]+)`", PAGE)):
        command: click.Command | None = penstock
        names, options = [word for word in words.split() if not word.startswith("-")], re.findall(r"--[\w-]+", words)
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(command), names.pop(0))
        assert command is not None, words
        assert set(options) <= {name for each in command.params for name in each.opts}, words
    flags = set(re.findall(r"`(--[\w-]+)`", PAGE))
    assert flags <= {name for option in OPTIONS for name in option.opts}


def test_byte_pair_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    own = lecture("byte_pair_encoding", monkeypatch)
    words = {tuple(own.pieces_of(word)): count for word, count in own.CORPUS.items()}
    assert sum(count for pieces, count in words.items() if own.END in pieces) == 23
    merges = own.train(words, 5)
    assert ["".join(pair) for pair in merges] == ["es", "est", "est</w>", "ol", "old"]
    letters = {piece for pieces in words for piece in pieces}
    assert own.encode("oldest", merges, letters) == ["old", "est</w>"]
    assert own.encode("zoo", merges, letters) == ["<unk>", "o", "o", "</w>"]
    for word in ("oldest", "lowest", "winner"):
        assert own.decode(own.encode(word, merges, letters)) == word
    compressed = list("aaabdaaabac")
    merges = own.train({tuple(compressed): 1}, 9)
    assert merges == [("a", "a"), ("a", "b"), ("aa", "ab")]
    for pair in merges:
        compressed = own.merge(compressed, pair)
    assert compressed == ["aaab", "d", "aaab", "a", "c"]
    assert own.merge(["a", "a", "a"], ("a", "a")) == ["aa", "a"]


def test_tokenizer_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    own = lecture("tokenizer_stages", monkeypatch)
    found = own.stages(Tokenizer.from_file(str(own.DEMO)), own.TEXT)
    assert found["parts"][:3] == ["def", "Ġwalk", "("]
    assert "".join(found["tokens"]) == "".join(found["parts"])
    assert found["ids"] == found["post-processed ids"]
    assert found["decoded"] == [own.TEXT]


def test_number_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    own = lecture("number_formats", monkeypatch)
    kept = [[own.stored(number, dtype) for dtype in own.FORMATS] for number in own.NUMBERS]
    assert kept[0] == pytest.approx([0.0001, 0.00010001659, 0.00010013580], rel=1e-6)
    assert kept[1] == pytest.approx([1e-8, 0.0, 1.0011718e-8], rel=1e-6)
    assert kept[2] == [100_000, float("inf"), 99_840]
    numbers = torch.rand(10_000, generator=torch.Generator().manual_seed(1)) + 1
    rounded, cut = (own.errors(numbers, each) for each in (numbers.bfloat16().float(), own.cut_off(numbers)))
    assert abs(rounded[0]) < 1e-4
    assert cut[0] == -cut[1]
    assert cut[1] == pytest.approx(2 * rounded[1], rel=0.05)


def test_quantisation(monkeypatch: pytest.MonkeyPatch) -> None:
    own = lecture("quantisation", monkeypatch)
    x = torch.tensor([-1.0, 2.0])
    right, wrong = own.asymmetric(x), own.asymmetric(x, 1)
    assert (right.codes(x).tolist(), right.zero, wrong.zero) == ([0, 255], 85, -85)
    assert right.values(torch.tensor([0.0, 255.0])).tolist() == pytest.approx([-1, 2])
    for name, numbers in own.samples().items():
        errors = [own.symmetric(numbers).error(numbers), own.asymmetric(numbers).error(numbers),
                  own.asymmetric(numbers, 1).error(numbers)]
        assert errors[0] > errors[1], name
        assert errors[2] > 30 * errors[0], name


def test_rounding_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    own = lecture("rounding_methods", monkeypatch)
    weight, inputs = own.weight_and_inputs()
    statistics = own.Statistics.empty(own.NUM_INPUTS)
    statistics.add(inputs)
    grids = own.errors_of_grids(weight, statistics)
    by_tensor, by_channel, by_group, *calibrated = grids.values()
    assert by_tensor > 10 * by_channel > 10 * by_group / 2
    assert by_channel > by_group
    assert calibrated == sorted(calibrated, reverse=True)
    methods = own.errors_of_methods(weight, statistics)
    assert max(methods["gptq"], methods["awq"]) < 0.5 * methods["rtn"]
    assert methods["squeezellm"] < methods["rtn"] == by_group
    assert methods["smoothquant"] < methods["llm-int8"] < 0.1 * methods["awq"]
    of_inputs = own.errors_of_inputs(weight, inputs, statistics)
    assert [*of_inputs][-1] == f"LLM.int8(), {statistics.num_outliers} inputs apart" == "LLM.int8(), 9 inputs apart"
    plain, smooth, apart = of_inputs.values()
    assert plain > 5 * smooth > 5 * apart


def test_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    own = lecture("sampling", monkeypatch)
    positions = torch.arange(20_000)
    for k in (3, 6):
        left = own.top_k(own.LOGITS, k)
        assert int(torch.isfinite(left).sum()) == k
        noise = torch.rand(len(positions), len(own.WORDS), generator=torch.Generator().manual_seed(3))
        for drawn in (own.gumbel_max(left, noise), own.draw(own.LOGITS, k, 7, positions)):
            torch.testing.assert_close(own.shares(drawn), left.softmax(0), atol=0.015, rtol=0)
    whole = own.draw(own.LOGITS, 6, 7, torch.arange(8))
    assert own.draw(own.LOGITS, 6, 7, torch.tensor([5, 2])).tolist() == whole[[5, 2]].tolist()


def test_speculative_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    own = lecture("speculative_decoding", monkeypatch)
    assert own.verify([0], [1, 2, 9, 4], len) == [1, 2, 3]
    assert own.verify([0], [1, 2], len) == [1, 2, 3]
    prompt = [own.verse(range(place)) for place in range(9)]
    plain, steps = own.generate(prompt, 24, own.verse, lambda tokens, most: [], 0)
    guessed, added = own.generate(prompt, 24, own.verse, own.look_up, 4)
    assert guessed == plain
    assert (len(steps), len(added), sum(added)) == (24, 12, 24)
    p, q = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.3, 0.3, 0.4])
    found, kept = own.drawn_by_rule(p, q, 10_000)
    torch.testing.assert_close(found, p, atol=0.02, rtol=0)
    assert kept == pytest.approx(0.7, abs=0.02)


def test_paging(monkeypatch: pytest.MonkeyPatch) -> None:
    own = lecture("paging", monkeypatch)
    pool = own.BlockPool(8)
    first = own.Text(pool, 4)
    first.write("a penstock")
    second = first.fork()
    second.write("s lead")
    assert first.blocks[:2] == second.blocks[:2]
    assert first.place(9) != second.place(9)
    assert [pool.count(block) for block in first.blocks] == [2, 2, 1]
    ones, blocks, large = (own.waste(size, 30) for size in (1, 16, 256))
    assert ones.of_blocks == 0 < blocks.of_blocks < 0.1 < large.of_blocks < blocks.of_contiguous


def test_batching(monkeypatch: pytest.MonkeyPatch) -> None:
    own = lecture("batching", monkeypatch)
    coming, waiting = ({policy: own.figures(example, policy) for policy in ("continuous", "static", "dynamic")}
                       for example in (own.COMING, own.WAITING))
    assert {policy: (found.steps, found.wait, found.answer) for policy, found in coming.items()} == {
        "continuous": (8, 1 / 5, 18 / 5), "static": (11, 15 / 5, 32 / 5), "dynamic": (11, 10 / 5, 27 / 5)}
    assert (waiting["continuous"].steps, waiting["static"].steps) == (8, 12)
    assert (waiting["continuous"].wait, waiting["static"].wait) == (pytest.approx(9 / 6), pytest.approx(16 / 6))
    assert waiting["dynamic"] == waiting["static"]
