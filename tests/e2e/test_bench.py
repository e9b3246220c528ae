"""The load generator against a real server: the numbers agree with what was asked for, and with the server's own."""

import json
import subprocess
import sys
from urllib.request import urlopen

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.bench.load.figures import SCHEMA, check_run
from tests.e2e.server import Server, serve
from tests.paths import DEMO_MODEL

NUM_REQUESTS, NEW, PROMPT = 12, 16, 24


@pytest.mark.slow
def test_the_figures_of_a_real_server(tmp_path):
    with serve(tmp_path) as server:
        for api in ("tgi", "openai", "openai-chat"):
            before = generated_tokens(server.url)
            file = tmp_path / f"{api}.json"
            done = subprocess.run(
                [sys.executable, "-m", "penstock", "bench", "serve", "--url", server.url, "--api", api, "--requests",
                 str(NUM_REQUESTS), "--concurrency", "1,4", "--output-tokens", str(NEW), "--ignore-eos", "--random",
                 str(PROMPT), "--tokenizer", str(DEMO_MODEL), "--warm-up", "0", "--goodput", "e2e:60000",
                 "--json", str(file)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            found = json.loads(file.read_text())
            jsonschema.validate(found, SCHEMA)
            for run in found["runs"]:
                check_run(run)
                assert (run["answered"], run["output_tokens"]) == (NUM_REQUESTS, NUM_REQUESTS * NEW)
                assert run["tokens_counted_by"] == "server"
                assert run["goodput"]["requests_per_second"] == run["requests_per_second"]
                if api == "openai":
                    assert run["prompt_tokens"] == NUM_REQUESTS * PROMPT
            assert generated_tokens(server.url) - before == 2 * NUM_REQUESTS * NEW


@pytest.mark.slow
def test_the_lectures_table_of_a_real_server(server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "bench", "load", "--url", server.url, "--scenario", "lecture", "--requests",
         "3", "--ignore-eos", "--tokenizer", str(DEMO_MODEL), "--seed", "9"], capture_output=True, text=True,
        check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[-3:]]
    assert [row[:7] for row in rows] == [[*f"{each} {each}".split(), "1"] for each in ("51 → 1", "232 → 1", "228 → 26")]
    for row in rows:
        p50, p75, p90 = map(float, row[7:10])
        assert 0 < p50 <= p75 <= p90
        assert row[10] == "0"


def generated_tokens(url: str) -> float:
    """How many the server says it has generated."""
    with urlopen(f"{url}/metrics") as response:
        families = text_string_to_metric_families(response.read().decode())
        return sum(sample.value for family in families for sample in family.samples
                   if sample.name == "tgi_request_generated_tokens_sum")
