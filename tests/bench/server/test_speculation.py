"""The benchmark of guessed tokens, against scripted servers."""

from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from penstock.bench.load.apis import APIS, Api, Prompt
from penstock.bench.programs.peers import LlamaCpp
from penstock.bench.server.speculation import Pair, main, run_rounds
from tests.bench.load.scripted_server import Script, completion_events, serving, tgi_events

GAPS, SLOW_GAPS = [0.002] * 4, [0.05] * 4


def started(stack: ExitStack, name: str, api: Api, scripts: list[Script]) -> Pair:
    plain, guessing = (int(urlsplit(stack.enter_context(serving(script))).port or 0) for script in scripts)
    return Pair(name, api, (plain, guessing))


def test_all_servers_get_the_same_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    own = [Script(lambda body, gaps=gaps: tgi_events(gaps)) for gaps in (SLOW_GAPS, GAPS)]
    theirs = [Script(lambda body, gaps=gaps: completion_events(gaps)) for gaps in (GAPS, SLOW_GAPS)]
    numbers = iter(range(9))
    with ExitStack() as stack:
        pairs = [started(stack, "Penstock", APIS["tgi"], own), started(stack, "llama.cpp", APIS["openai"], theirs)]
        run_rounds("edits", pairs, 1, 2, lambda: [Prompt(f"text {next(numbers)}", 4)], {})
    sent = [[body.get("inputs", body.get("prompt")) for _, _, body in script.requests] for script in (*own, *theirs)]
    assert sent == [["text 0", "text 1"]] * 4
    first, second = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (first[:3], second[:3]) == (["edits", "1", "Penstock"], ["edits", "1", "llama.cpp"])
    assert float(first[6]) > 1 > float(second[6])


def test_the_llama_cpp_that_guesses_has_more_flags(tmp_path: Path) -> None:
    (tmp_path / "llama-server").touch()
    peer = LlamaCpp(tmp_path, tmp_path / "model.gguf", 2)
    assert peer.server(1, ["--spec-type", "ngram-simple"]).command == [
        *peer.server(1).command, "--spec-type", "ngram-simple"]


def test_llama_cpp_needs_the_model_as_gguf(tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["--llama", str(tmp_path)])
    assert shown.exit_code == 2
    assert "--llama needs --gguf" in shown.output
