import math

import pytest
from click.testing import CliRunner

from penstock.bench.engine.command import Rounds
from penstock.bench.engine.memory_bound import read_bytes, rounded_bytes
from penstock.bench.engine.scaling import forms, main, share_of_linear, table
from penstock.bench.programs.trial import Result, Trial
from penstock.shard.config import physical_cores
from tests.tiny_models import DEMO_MODEL


def test_there_are_no_more_threads_or_shards_than_cores():
    assert [form.name for form in forms(1)] == ["1 thread"]
    assert [form.name for form in forms(2)] == ["1 thread", "2 threads", "2 shards"]
    assert [form.name for form in forms(6)] == ["1 thread", "2 threads", "4 threads", "2 shards", "4 shards"]
    assert [form.name for form in forms(64)][-4:] == ["16 threads", "2 shards", "4 shards", "8 shards"]
    assert {form.cores for form in forms(64)} == {1, 2, 4, 8, 16}


def test_a_share_is_compared_within_its_round():
    alone = [Result(100, 1.0), Result(100, 2.0), Result(100, 4.0)]
    own = [Result(400, 2.0), Result(400, 4.0), Result(400, 2.0)]
    assert share_of_linear(own, alone, cores=2) == pytest.approx(1.0)
    assert share_of_linear(own, alone, cores=4) == pytest.approx(0.5)


def test_decode_is_shown_beside_what_memory_gives():
    rounds, trials = Rounds([]), [Trial("decode, 4", 4, 8, 3), Trial("prefill, 8", 1, 8, 1)]
    for form, tokens in zip(forms(2), (100, 160, 150), strict=True):
        for trial in trials:
            rounds.results[trial.name, form.name] = [Result(tokens, 1.0)]
    rows = list(table(rounds, trials, forms(2), num_bytes=10, speeds={1: 1000.0, 2: 1600.0}))
    assert rows[1:] == [
        ["decode, 4", "100.0", "160.0 (0.80)", "150.0 (0.75)"], ["  of memory's speed", "25%", "25%", "23%"],
        ["prefill, 8", "100.0", "160.0 (0.80)", "150.0 (0.75)"]]


def test_rounded_weights_are_fewer_bytes():
    assert 0.2 < rounded_bytes(DEMO_MODEL, "int4") / read_bytes(DEMO_MODEL) < 0.6
    assert math.isclose(rounded_bytes(DEMO_MODEL, "int8") / read_bytes(DEMO_MODEL), 0.53, abs_tol=0.05)


@pytest.mark.every_case
@pytest.mark.slow
def test_threads_and_shards_take_turns():
    options = ["--cores", "2", "--rounds", "1", "--sequences", "2", "--new", "4", "--prompt", "8", "--prefill", "32"]
    result = CliRunner().invoke(main, [str(DEMO_MODEL), *options, "--quantize", ""])
    assert result.exit_code == 0, result.output
    named = [line.partition("  ")[0] for line in result.stdout.splitlines()]
    assert [name for name in named if name] == [
        f"{DEMO_MODEL.name}, {len(physical_cores())} cores, 1 rounds", "weights: as they are",
        "tokens/s, share of linear", "decode, 2", "prefill, 32"]
