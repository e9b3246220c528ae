"""The examples run as they are, all but one with the same model."""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import LLM, SamplingParams
from tests.adapter_files import make_adapter
from tests.paths import DEMO_MODEL, ROOT

EXAMPLES = ROOT / "examples/offline"
SHARED = {
    "basic": r"('.+' goes on with '.+'\n){3}",
    "chat": r"What .+\?\n  '.+'\n  \d+ of \d+ tokens .+\nAnd .+\?\n  '.+'\n  [1-9]\d* of \d+ tokens .+\n",
    "several_answers": r"0: '.+'\n1: '.+'\n2: '.+'\n3: '.+'\n(one of the best, of logprob -\d+\.\d: '.+'\n){2}",
    "structured_outputs": r"(yes|no|in a way)\n[a-z]{3,8}@example\.org\n"
                          r"\{'title': .+, 'year': (19|20)\d\d\}\n\d+( \+ \d+){1,2}\n",
    "prefix_caching": r"the first time .+\n(def step_\d+\('.+', with [1-9]\d* tokens known\n){8}",
    "beam_search": r"(-\d\.\d\d 'def add.+'\n){2}(-\d\.\d\d '# Sort.+'\n){2}",
    "metrics": r"(vllm:\w+( = \d+(\.\d+)?|: [1-9]\d* values, \d+\.\d{4} on average)\n){12,}",
}
"""How the output of each looks; no two lines are the same."""


@pytest.mark.parametrize("name", SHARED)
def test_an_example_runs(llm: LLM, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](llm)
    shown = capsys.readouterr().out
    assert re.fullmatch(SHARED[name], shown), shown
    assert len({*shown.splitlines()}) == len(shown.splitlines())


@pytest.mark.slow
def test_the_example_with_an_adapter_runs(llm: LLM, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = make_adapter(tmp_path / "mine", DEMO_MODEL, strength=3.0)
    runpy.run_path(str(EXAMPLES / "adapters.py"))["main"](llm, str(adapter))
    plain, adapted = (line.partition(": ")[2] for line in capsys.readouterr().out.splitlines())
    assert plain != adapted


def output_of(name: str) -> str:
    """The output of an example that runs as a program."""
    done = subprocess.run([sys.executable, f"examples/offline/{name}.py"], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_example_runs_as_a_program() -> None:
    assert re.fullmatch(SHARED["basic"], output_of("basic"))


@pytest.mark.slow
def test_the_example_of_streams_prints_the_parts_of_answers(llm: LLM) -> None:
    parts: dict[str, list[str]] = {}
    for line in output_of("streaming").splitlines():
        prompt, _, part = line.partition(": ")
        parts.setdefault(f"{prompt}:", []).append(ast.literal_eval(part))
    outputs = llm.generate([*parts], SamplingParams(temperature=0, max_tokens=24), use_tqdm=False)
    assert ["".join(part) for part in parts.values()] == [output.outputs[0].text for output in outputs]
    assert len(parts) == 2


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SHARED, "adapters", "streaming"}
