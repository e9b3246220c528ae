"""What is measured of a server whose delays are known."""

import asyncio
import itertools
import statistics
from types import SimpleNamespace

import pytest

from penstock.bench.load import generator
from penstock.bench.load.apis import APIS, Prompt
from penstock.bench.load.client import ServerError, Target
from penstock.bench.load.generator import Concurrency, Rate, generate_load
from penstock.bench.load.measurement import Run
from tests.bench.load.scripted_server import Script, chat_events, completion_events, serving, tgi_events

GAPS = [0.12, 0.03, 0.03, 0.06]
PROMPT = Prompt("Hello", 4)
SLACK = 5.0
"""Seconds by which this machine may be late."""


def measure(script: Script, api: str, number: int = 1, **target) -> Run:
    with serving(script) as url:
        return asyncio.run(generate_load(Target(url, APIS[api], **target), Concurrency(1), [PROMPT] * number))


def check_times(run: Run, first: float = GAPS[0]) -> None:
    [found] = run.measurements
    assert found.failure is None
    assert found.num_tokens == 4
    assert first <= found.first < first + SLACK
    sent = itertools.accumulate(GAPS[1:], initial=first)
    came = itertools.accumulate(found.gaps, initial=found.first)
    assert all(due <= seen < due + SLACK for due, seen in zip(sent, came, strict=True))
    assert found.first + sum(found.gaps) <= found.duration
    assert found.duration <= run.duration


def test_tgi():
    script = Script(lambda body: tgi_events(GAPS))
    run = measure(script, "tgi", api_key="secret", fields={"top_k": 5})
    check_times(run)
    assert run.prompt_lengths == {5}
    path, headers, body = script.requests[0]
    assert (path, headers["Authorization"]) == ("/generate_stream", "Bearer secret")
    assert body == {"inputs": "Hello", "parameters": {"max_new_tokens": 4, "details": True, "top_k": 5}}


def test_tgi_without_a_count_has_a_token_in_each_event():
    [found] = measure(Script(lambda body: tgi_events([0.0] * 3, counts=False)), "tgi").measurements
    assert (found.num_tokens, found.counted_by) == (3, "events")


def test_completions():
    script = Script(lambda body: completion_events(GAPS))
    run = measure(script, "openai")
    check_times(run)
    assert run.prompt_lengths == {7}
    path, _, body = script.requests[0]
    assert (path, body["model"], body["max_tokens"], body["stream"]) == ("/v1/completions", "scripted", 4, True)
    assert body["stream_options"] == {"include_usage": True}


def test_several_tokens_in_a_chunk_are_counted_by_the_usage():
    [found] = measure(Script(lambda body: completion_events([0.01] * 3, tokens_each=4)), "openai").measurements
    assert (found.num_tokens, len(found.times), found.counted_by) == (12, 3, "server")


def test_without_usage_chunks_are_counted():
    [found] = measure(Script(lambda body: completion_events([0.01] * 3, usage=False)), "openai").measurements
    assert (found.num_tokens, found.prompt_tokens, found.counted_by) == (3, None, "chunks")


def test_the_chunk_that_names_the_role_is_no_first_token():
    script = Script(lambda body: chat_events(GAPS, first=0.2))
    check_times(measure(script, "openai-chat", model="named"), first=GAPS[0] + 0.2)
    assert script.requests[0][2]["messages"] == [{"role": "user", "content": "Hello"}]
    assert script.requests[0][2]["model"] == "named"


@pytest.mark.parametrize(("api", "whole"), [
    ("tgi", {"generated_text": "x", "details": {"generated_tokens": 4}}),
    ("openai", {"choices": [{"text": "x"}], "usage": {"completion_tokens": 4, "prompt_tokens": 2}})])
def test_an_answer_in_one_piece(api, whole):
    run = measure(Script(lambda body: [], whole=whole), api, is_streamed=False)
    [found] = run.measurements
    assert (found.num_tokens, found.first, found.failure) == (4, None, None)
    assert found.duration > 0


@pytest.mark.parametrize(("script", "kind", "details"), [
    (Script(lambda body: [], status=429), "status 429", "too busy"),
    (Script(lambda body: [*tgi_events([0, 0])[:1], (0, {"error": "lost", "error_type": "x"})]), "error in a stream",
     "lost"),
    (Script(lambda body: tgi_events([0, 0])[:1]), "incomplete stream", "1 events, none of which ends the answer"),
    (Script(lambda body: [(0, "nonsense")]), "broken answer", "JSON"),
    (Script(lambda body: [(0, "[1]")]), "broken answer", "not a JSON object"),
    (Script(lambda body: tgi_events([0, 0.8])), "timeout", "after 0.3 s"),
])
def test_failures_are_told_apart(script, kind, details):
    [found] = measure(script, "tgi", timeout=0.3 if kind == "timeout" else 30).measurements
    assert found.failure.kind == kind
    assert details in found.failure.details
    assert found.num_tokens == 0


def test_no_server():
    run = asyncio.run(generate_load(Target("http://127.0.0.1:1", APIS["tgi"]), Concurrency(1), [PROMPT]))
    assert [failure.kind for failure in run.failures] == ["no connection"]


@pytest.mark.parametrize("models", [{"data": []}, {"error": "no"}, [], {"data": [{}]}])
def test_a_server_that_names_no_model_is_refused(models):
    with pytest.raises(ServerError, match="names no model"):
        measure(Script(lambda body: [], models=models), "openai")


def test_so_many_clients_at_once():
    script = Script(lambda body: tgi_events([0.02, 0.02]))
    with serving(script) as url:
        run = asyncio.run(generate_load(Target(url, APIS["tgi"]), Concurrency(3), [PROMPT] * 12))
    assert (len(run.answered), script.most_running) == (12, 3)
    assert run.tokens_per_second == pytest.approx(24 / run.duration)


def test_requests_that_arrive_at_random_wait_for_no_answer():
    script = Script(lambda body: tgi_events([0.5]))
    with serving(script) as url:
        run = asyncio.run(generate_load(Target(url, APIS["tgi"]), Rate(100, seed=1), [PROMPT] * 60))
    assert len(run.answered) == 60
    assert script.most_running > 20


def test_requests_arrive_as_a_poisson_process_has_them(monkeypatch):
    now, arrivals, turn = 0.0, [], asyncio.sleep

    async def send(prompt: Prompt) -> None:
        arrivals.append(now)

    async def sleep(seconds: float) -> None:
        nonlocal now
        await turn(0)  # what was sent before arrives before the clock goes on
        now += seconds

    monkeypatch.setattr(generator, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(Rate(100, seed=1).drive(send, [PROMPT] * 1000))
    gaps = [later - earlier for earlier, later in itertools.pairwise(arrivals)]
    assert statistics.mean(gaps) == pytest.approx(0.01, rel=0.1)
    assert statistics.stdev(gaps) == pytest.approx(0.01, rel=0.1)


def test_the_first_request_waits_for_nothing():
    """For a run's duration begins with it. The next would come after years."""
    sent = []

    async def send(prompt: Prompt) -> None:
        sent.append(prompt)

    asyncio.run(asyncio.wait_for(Rate(1e-9).drive(send, [PROMPT]), 30))
    assert sent == [PROMPT]


def test_who_cancels_keeps_what_was_measured():
    run = Run("concurrency", 1)

    async def cut(url: str) -> None:
        task = asyncio.create_task(generate_load(Target(url, APIS["tgi"]), Concurrency(1), [PROMPT] * 9, run))
        while len(run.measurements) < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with serving(Script(lambda body: tgi_events([0.05, 0.05]))) as url:
        asyncio.run(cut(url))
    assert 2 <= len(run.answered) < 9
    assert 0.2 < run.duration < 30
