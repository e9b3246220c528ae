"""The series of a model in this program, and the bar."""

from functools import partial
from typing import Any

import pytest
from tqdm import tqdm

from penstock import LLM, Counter, Gauge, Histogram, SamplingParams
from tests.paths import DEMO_MODEL

PROMPTS = [f"def function_{number}(" for number in range(20)]
GREEDY = SamplingParams(temperature=0, max_tokens=8)


def by_name(llm: LLM) -> dict[str, Any]:
    return {each.name: each for each in llm.get_metrics()}


def test_the_bar_and_the_metrics(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    before = by_name(llm)
    llm.generate(PROMPTS, GREEDY)
    assert "20/20" in (shown := capsys.readouterr().err)
    assert "tokens/s read" in shown
    after = by_name(llm)
    counts = [each["tgi_request_success"] for each in (before, after)]
    assert [type(each) for each in counts] == [Counter, Counter]
    assert counts[1].value - counts[0].value == 20
    assert isinstance(after["vllm:num_requests_running"], Gauge)
    times = after["vllm:time_to_first_token_seconds"]
    assert isinstance(times, Histogram)
    assert times.buckets["+Inf"] == times.count >= 20
    assert times.sum > 0
    assert times.labels == {"model_name": str(DEMO_MODEL), "engine": "0"}


def test_a_bar_of_the_program_s_own(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate(PROMPTS[:3], GREEDY, use_tqdm=partial(tqdm, unit="prompts"))
    shown = capsys.readouterr().err
    assert "3/3" in shown
    assert "prompts/s" in shown
