"""`penstock bench serve` as a user runs it."""

import json
import signal
import subprocess
import sys
import time

import jsonschema
import pytest
from click.testing import CliRunner, Result

from penstock.bench.load import picture
from penstock.bench.load.command import main
from tests.bench.load.figures import SCHEMA, check_run
from tests.bench.load.scripted_server import Script, completion_events, serving, tgi_events


def invoke(script: Script, *arguments: str) -> Result:
    with serving(script) as url:
        return CliRunner(catch_exceptions=False).invoke(main, ["--url", url, *arguments])


def figures(path):
    found = json.loads(path.read_text())
    jsonschema.validate(found, SCHEMA)
    return found


def test_levels_are_measured_in_turn_shown_and_written(tmp_path):
    script = Script(lambda body: tgi_events([0.02, *[0.001] * (body["parameters"]["max_new_tokens"] - 1)]))
    result = invoke(script, "--concurrency", "1,3", "--requests", "6", "--output-tokens", "4", "--random", "10",
                    "--goodput", "ttft:5000,itl:5000", "--json", str(tmp_path / "a.json"), "--ignore-eos",
                    "--fields", '{"seed": 1}', "--picture", str(tmp_path / "deep" / "a.png"))
    assert result.exit_code == 0, result.output
    found = figures(tmp_path / "a.json")
    assert [run["concurrency"] for run in found["runs"]] == [1, 3]
    for run in found["runs"]:
        check_run(run)
        assert (run["output_tokens"], run["prompt_tokens"], run["failures"]) == (24, 30, [])
        assert run["goodput"]["requests_per_second"] == run["requests_per_second"]
        assert run["ttft_ms"]["p50"] >= 20
    assert found["fields"] == {"seed": 1, "ignore_eos": True}
    assert script.requests[0][2]["parameters"]["seed"] == 1
    assert len(script.requests) == 1 + 6 + 6             # one warms up
    assert (tmp_path / "deep" / "a.png").read_bytes()[:4] == b"\x89PNG"
    for text in ("concurrency 1: 6 of 6 requests answered", "time to first token", "goodput: ", "as the server counts",
                 "prompts of 5 tokens"):
        assert text in result.output


def test_a_scenario_has_a_table_of_latencies(tmp_path):
    script = Script(lambda body: tgi_events([0.002] * body["parameters"]["max_new_tokens"]))
    result = invoke(script, "--scenario", "lecture", "--concurrency", "1,2", "--requests", "4", "--json",
                    str(tmp_path / "a.json"), "--picture", str(tmp_path / "a.png"))
    assert result.exit_code == 0, result.output
    found = figures(tmp_path / "a.json")
    assert found["prompts"] == ", then ".join(f"random, {number} common words" for number in (51, 232, 228))
    lengths = [(51, 1), (232, 1), (228, 26)]
    assert [(run["concurrency"], *run["lengths"].values()) for run in found["runs"]] == [
        (level, *each) for level in (1, 2) for each in lengths]
    head, *rows = result.stdout.splitlines()[-7:]
    assert head.split()[-5:] == ["e2e", "p50", "p75", "p90", "failed"]
    for row, run in zip(rows, found["runs"], strict=True):
        shares = [f"{run['e2e_ms'][name]:.1f}" for name in ("p50", "p75", "p90")]
        new = run["lengths"]["output"]
        assert row.split() == [f"{run['lengths']['prompt']}", "→", f"{new}", "5", "→", f"{new}",
                               f"{run['concurrency']:g}", *shares, "0"]
    assert "228 → 26 tokens, concurrency 2: 4 of 4 requests answered" in result.output
    sent = [body for _, _, body in script.requests][1:]
    assert [len(body["inputs"].split()) for body in sent[::4]] == [51, 232, 228] * 2
    assert len({body["inputs"][:20] for body in sent}) == len(sent) == 24, "no two share what a server might keep"


def test_a_rate_and_a_base_address_of_openai(tmp_path):
    script = Script(lambda body: completion_events([0.01] * 3, usage=False))
    with serving(script) as url:
        result = CliRunner(catch_exceptions=False).invoke(main, [
            "--url", f"{url}/v1", "--api", "openai", "--rate", "200", "--requests", "10", "--json",
            str(tmp_path / "a.json")], env={"API_KEY": "secret"})
    assert result.exit_code == 0, result.output
    [run] = figures(tmp_path / "a.json")["runs"]
    check_run(run)
    assert (run["rate"], run["output_tokens"], run["tokens_counted_by"]) == (200, 30, "chunks")
    assert "the server does not count: its chunks" in result.output
    assert {headers["Authorization"] for _, headers, _ in script.requests} == {"Bearer secret"}


def test_failures_are_counted_by_status(tmp_path):
    result = invoke(Script(lambda body: [], status=429), "--warm-up", "0", "--requests", "5", "--concurrency", "2",
                    "--json", str(tmp_path / "a.json"))
    assert result.exit_code == 1
    assert "failed, 5 of them: status 429: " in result.output
    assert "answered no request: status 429" in result.output
    [run] = figures(tmp_path / "a.json")["runs"]
    assert (run["failures"][0]["count"], run["answered"], run["e2e_ms"]) == (5, 0, None)


@pytest.mark.parametrize(("arguments", "sentence"), [
    (["--url", "localhost:3000"], "is not an address such as http://localhost:3000"),
    (["--url", "http://localhost:port"], "is not an address"),
    (["--url", "http://[::1"], "is not an address"),
    (["--url", "http://127.0.0.1:1"], "there is no server at http://127.0.0.1:1"),
    (["--url", "http://127.0.0.1:1", "--api", "openai"], "http://127.0.0.1:1/v1/models names no model"),
    (["--goodput", "speed:3"], "is not a limit such as ttft:200; known are ttft, itl, tpot, e2e"),
    (["--goodput", "ttft:fast"], "is not a limit"),
    (["--no-stream", "--goodput", "ttft:3"], "not seen with --no-stream"),
    (["--concurrency", "1,0"], "is not a list of numbers such as 1,4,16"),
    (["--concurrency", "1.5"], "is not a list of numbers"),
    (["--rate", "1", "--concurrency", "1"], "exclude each other"),
    (["--random", "3", "--prompts", __file__], "--prompts and --random exclude each other"),
    (["--random", "3", "--scenario", "lecture"], "--scenario and --random exclude each other"),
    (["--scenario", "talk"], "'talk' is not 'lecture'"),
    (["--fields", "[1]"], "is not a JSON object"),
])
def test_what_is_wrong_is_said_in_a_sentence(arguments, sentence):
    result = CliRunner(catch_exceptions=False).invoke(main, arguments)
    assert result.exit_code in (1, 2)
    assert sentence in " ".join(result.output.split())


def test_a_first_request_that_is_refused_ends_it():
    result = invoke(Script(lambda body: [], status=401))
    assert result.exit_code == 1
    assert "does not answer a first request (status 401)" in result.output


def test_a_picture_without_matplotlib_is_refused_before_anything_is_sent(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    script = Script(lambda body: tgi_events([0.0]))
    result = invoke(script, "--picture", str(tmp_path / "a.png"))
    assert result.exit_code == 1
    assert "pip install 'penstock[bench]'" in result.output
    assert script.requests == []
    with pytest.raises(Exception, match="matplotlib"):
        picture.check_matplotlib()


def test_ctrl_c_shows_and_writes_what_was_measured_so_far(tmp_path):
    script = Script(lambda body: tgi_events([0.05] * 4))
    with serving(script) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "bench", "serve", "--url", url, "--concurrency", "2,4", "--requests",
             "500", "--json", str(tmp_path / "a.json")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while len(script.requests) < 8 and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "concurrency 2: interrupted: " in output
    assert "Traceback" not in errors
    [run] = figures(tmp_path / "a.json")["runs"]
    check_run(run)
    assert run["is_interrupted"]
    assert 4 <= run["answered"] < 500
