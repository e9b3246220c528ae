"""What /metrics tells of requests, tokens, steps and memory."""

import asyncio
import itertools
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.contract.admission import Admission
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.step_result import StepResult
from penstock.router.chat.template import ChatTemplate
from penstock.router.engine.request import Request
from penstock.router.engine.text_path import Piece, TextPath
from penstock.router.errors import RouterError
from penstock.router.fleet.errors import FleetError
from penstock.router.generation import answers
from penstock.router.groups.groups import Groups
from penstock.router.metrics.metrics import Metrics
from penstock.router.scheduling.confirmed import Sampled
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.occupancy import Occupancy
from penstock.router.text.tokenizer import Tokenizer
from tests.eventually import until
from tests.fakes import LIMITS
from tests.router.api.conftest import Server, Start

DASHBOARD = {
    "tgi_request_count", "tgi_request_success", "tgi_request_failure", "tgi_queue_size", "tgi_batch_current_size",
    "tgi_batch_current_max_tokens", "tgi_batch_concat", "tgi_request_skipped_tokens_bucket",
    "tgi_request_input_length_bucket", "tgi_request_generated_tokens_bucket", "tgi_request_duration_bucket",
    "tgi_request_queue_duration_bucket", "tgi_request_mean_time_per_token_duration_bucket",
    'tgi_batch_inference_duration_bucket{method="prefill"}', 'tgi_batch_inference_duration_bucket{method="decode"}',
    'tgi_batch_forward_duration_bucket{method="prefill"}', 'tgi_batch_forward_duration_bucket{method="decode"}',
    'tgi_batch_decode_duration_bucket{method="prefill"}', 'tgi_batch_decode_duration_bucket{method="decode"}',
    'tgi_batch_filter_duration_bucket{method="prefill"}', 'tgi_batch_filter_duration_bucket{method="decode"}',
    'tgi_batch_concat_duration_bucket{method="decode"}',
}
"""What TGI's Grafana dashboard asks for, with the labels that its panels choose by."""
OTHERS_OF_TGI = {
    "tgi_batch_inference_count", "tgi_batch_inference_success", "tgi_batch_inference_failure",
    "tgi_batch_max_total_tokens", "tgi_batch_next_size_bucket", "tgi_request_validation_duration_bucket",
    "tgi_request_inference_duration_bucket", "tgi_request_max_new_tokens_bucket",
}


async def test_all_that_the_dashboard_of_tgi_shows(server: Server) -> None:
    await server.generate(max_new_tokens=4)
    names = {re.sub(r',?le="[^"]*"', "", series).replace("{}", "") for series in server.series()}
    names |= {name.partition("{")[0] for name in names}
    assert names >= DASHBOARD | OTHERS_OF_TGI
    assert {name for name in names if name.startswith("tgi_request_failure{")} == {
        f'tgi_request_failure{{err="{kind}"}}' for kind in (
            "overloaded", "validation", "generation", "incomplete", "dropped", "template")}


async def test_metrics_of_a_request(start: Start) -> None:
    server = await start(answer=" b")
    await server.generate(" a" * 300, max_new_tokens=5)
    response = await server.client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    series = server.series()
    assert series["tgi_request_count"] == series["tgi_request_success"] == 1
    assert series["tgi_request_input_length_sum"] == 300
    assert series["tgi_request_generated_tokens_sum"] == series["tgi_request_max_new_tokens_sum"] == 5
    for name in ("duration", "validation_duration", "queue_duration", "inference_duration",
                 "mean_time_per_token_duration"):
        assert series[f"tgi_request_{name}_count"] == 1
        assert 0 < series[f"tgi_request_{name}_sum"] < 5
    total = series["tgi_request_duration_sum"]
    parts = sum(series[f"tgi_request_{name}_duration_sum"] for name in ("validation", "queue", "inference"))
    assert total == pytest.approx(parts)
    assert series['tgi_batch_inference_count{method="prefill"}'] == 2
    assert series['tgi_batch_inference_count{method="decode"}'] == 4
    assert series['tgi_batch_forward_duration_sum{method="decode"}'] == pytest.approx(0.004)
    assert series['tgi_batch_inference_duration_sum{method="decode"}'] == pytest.approx(0.006)
    assert series['penstock_kv_blocks{state="free"}'] + series['penstock_kv_blocks{state="used"}'] == 256


async def test_metrics_of_tokens(start: Start) -> None:
    server = await start(answer=" b")
    fleet, answer = server.fleet, server.fleet.answer
    first, between = "penstock_time_to_first_token_seconds", "penstock_inter_token_latency_seconds"

    def answer_one(row: Row) -> int:
        fleet.may_answer.clear()
        return answer(row)

    fleet.answer = answer_one
    fleet.may_answer.clear()
    waiting = asyncio.create_task(server.generate("a", max_new_tokens=4))
    await until(lambda: bool(fleet.plans))
    await asyncio.sleep(0.3)
    fleet.may_answer.set()
    await until(lambda: server.series()[f"{first}_count"] == 1)
    await asyncio.sleep(0.3)
    fleet.answer = answer
    fleet.may_answer.set()
    await waiting
    series = server.series()
    assert (series[f"{first}_count"], series[f"{between}_count"]) == (1, 3)
    assert series[f'{first}_bucket{{le="0.02"}}'] == 0
    assert series[f"{first}_sum"] > 0.29
    assert series[f"{between}_sum"] > 0.29
    assert series[f"{first}_sum"] + series[f"{between}_sum"] < series["tgi_request_duration_sum"] + 0.2


async def test_metrics_of_the_prefix_cache(start: Start) -> None:
    server = await start(answer=" b")
    for _ in range(2):
        await server.generate(" a" * 40, max_new_tokens=1)
    assert server.series()["penstock_prefix_hit_tokens"] == 32


def test_metrics_of_plans_and_losses() -> None:
    metrics = Metrics(LIMITS)
    first = Row(slot=0, start=0, token_ids=(5, 6, 7))
    decode = Row(slot=1, start=9, from_last_sample=True, is_decode=True)
    alone = Plan(0, (first,), admitted=(Admission(0, hit_tokens=32), Admission(1, hit_tokens=16)))
    joining = Plan(1, (decode, first), admitted=(Admission(2),), preempted=(4, 5))
    for plan in (alone, joining, Plan(2, (decode,))):
        metrics.planned(plan, took=0.25)
    result = StepResult(0, (), forward_ns=2_000_000_000, sample_ns=500_000_000, energy_uj=1_500_000)
    metrics.step(joining, result, (Sampled(1, 7, -0.5), Sampled(2, 7, -0.5)), commit_time=0.25, text_time=0.125)
    metrics.step(Plan(2, (decode,)), result, (Sampled(1, 7, -0.5, FinishReason.LENGTH),), commit_time=0.25,
                 text_time=0.125)
    metrics.lost(joining)
    metrics.replayed(3)
    metrics.group_restarted()
    metrics.occupancy("", Occupancy(1, 2, used_blocks=3, free_blocks=4, wasted_positions=5, block_size=16,
                                    step_tokens=928))
    lines = metrics.exposition().decode().splitlines()
    assert {
        "penstock_prefix_hit_tokens 48.0", "penstock_preemptions 2.0", "penstock_replays 3.0",
        "penstock_group_restarts 1.0", "penstock_step_tokens 928.0", "penstock_energy_joules 3.0",
        "penstock_kv_wasted_slots 5.0", 'penstock_kv_blocks{state="used"} 3.0',
        "penstock_prompt_tokens 3.0", "penstock_generated_tokens 3.0",
        "tgi_queue_size 1.0", "tgi_batch_current_size 2.0", "tgi_batch_current_max_tokens 48.0",
        "tgi_batch_max_total_tokens 112.0", "tgi_batch_next_size_sum 3.0", "tgi_batch_next_size_count 2.0",
        'tgi_batch_next_size_bucket{le="1.0"} 1.0', 'tgi_batch_concat{reason="chunking"} 1.0',
        'tgi_batch_concat_duration_sum{method="decode"} 0.25', 'tgi_batch_concat_duration_count{method="decode"} 1.0',
        'tgi_batch_inference_count{method="prefill"} 2.0', 'tgi_batch_inference_success{method="prefill"} 1.0',
        'tgi_batch_inference_failure{method="prefill"} 1.0', 'tgi_batch_inference_failure{method="decode"} 0.0',
        'tgi_batch_inference_duration_sum{method="decode"} 2.5', 'tgi_batch_forward_duration_sum{method="decode"} 2.0',
        'tgi_batch_decode_duration_sum{method="decode"} 0.625', 'tgi_batch_filter_duration_sum{method="decode"} 0.25',
        'tgi_batch_filter_duration_count{method="prefill"} 0.0',
    } <= set(lines)


async def test_a_request_for_several_answers_is_one(start: Start) -> None:
    server = await start(answer=" b")
    body = {"prompt": [" a", " a a"], "n": 2, "seed": 1, "max_tokens": 3}
    assert (await server.post("/v1/completions", body)).status == 200
    series = server.series()
    assert series["tgi_request_count"] == series["tgi_request_success"] == 1
    assert series["tgi_request_generated_tokens_count"] == series["tgi_request_duration_count"] == 4


async def test_a_request_of_which_one_answer_fails_has_failed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is whole when the second one can't go on; the third is left off, and nothing stays behind."""
    server = await start(answer=" b c")

    def start_text(tokenizer: Tokenizer, request: Request) -> TextPath:
        path = TextPath(tokenizer, replace(request, stop=(" b",) if request.sampling.branch == 0 else ()))
        if request.sampling.branch == 1:
            path.push = _failing(path.push, at=2)  # type: ignore[method-assign]
        return path

    monkeypatch.setattr(answers, "TextPath", start_text)
    response = await server.post("/v1/completions", {"prompt": " a", "n": 3, "seed": 1, "max_tokens": 500})
    assert response.status == 424
    await server.until_idle()
    series = server.series()
    assert series["tgi_request_success"] == 0
    assert sum(value for name, value in series.items() if name.startswith("tgi_request_failure")) == 1
    assert series["tgi_request_generated_tokens_count"] == 1
    assert server.groups._permits == LIMITS.max_concurrent_requests


def _failing(push: Callable[[int], Piece], at: int) -> Callable[[int], Piece]:
    """A text path's `push` that fails in the call of this number."""
    numbers = itertools.count(1)

    def push_or_fail(token_id: int) -> Piece:
        if next(numbers) == at:
            raise ZeroDivisionError
        return push(token_id)

    return push_or_fail


async def test_requests_by_route_and_status(server: Server) -> None:
    await server.generate(max_new_tokens=1)
    await server.post("/generate", {"inputs": ""})
    await server.post("/generate_stream", {"inputs": ""})
    await server.client.get("/nothing")
    series = server.series()
    assert series['penstock_requests{route="/generate",status="200"}'] == 1
    assert series['penstock_requests{route="/generate",status="422"}'] == 1
    assert series['penstock_requests{route="/generate_stream",status="200"}'] == 1
    assert series['penstock_requests{route="",status="404"}'] == 1
    assert series['tgi_request_failure{err="validation"}'] == 2


async def read(server: Server, path: str) -> bytes:
    return await (await server.post(path, {"inputs": "a"})).read()


@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
async def test_clients_that_leave(server: Server, path: str) -> None:
    server.fleet.may_answer.clear()
    asked = asyncio.create_task(read(server, path))
    await until(lambda: bool(server.fleet.plans))
    asked.cancel()
    await until(lambda: server.series()['tgi_request_failure{err="dropped"}'] == 1)
    server.fleet.may_answer.set()
    await server.until_idle()
    series = server.series()
    assert series["tgi_request_success"] == 0
    assert sum(value for name, value in series.items() if name.startswith("tgi_request_failure")) == 1


SEVERAL = {"prompt": "a", "n": 5, "seed": 1, "max_tokens": 200, "stream": True}
"""More answers than run at once."""


async def test_a_client_that_leaves_several_answers(start: Start) -> None:
    """Those that run and those that wait are all given up; the request was one."""
    server = await start(replace(LIMITS, max_slots=2), answer=" b")
    response = await server.post("/v1/completions", SEVERAL)
    await response.content.readline()
    assert server.engine._scheduler.num_waiting == 3
    response.close()
    await server.until_idle()
    series = server.series()
    assert (series["tgi_request_success"], series['tgi_request_failure{err="dropped"}']) == (0, 1)
    await until(lambda: server.engine._scheduler.memory.num_held == 0)


async def test_several_answers_that_are_given_up_are_one_failure(start: Start) -> None:
    server = await start(replace(LIMITS, max_slots=2), answer=" b")
    response = await server.post("/v1/completions", SEVERAL)
    await response.content.readline()
    server.engine.give_up()
    assert b'"code":"service_unavailable"' in await response.read()
    await server.until_idle()
    assert sum(value for name, value in server.series().items() if name.startswith("tgi_request_failure")) == 1


async def test_a_client_that_has_its_answer_may_leave(server: Server) -> None:
    async with server.client.post("/generate_stream", json={"inputs": "a"}) as response:
        await response.read()
    await server.client.close()
    await server.until_idle()
    assert server.series()['tgi_request_failure{err="dropped"}'] == 0
    assert server.series()["tgi_request_success"] == 1


async def test_metrics_of_a_lost_group(server: Server) -> None:
    server.fleet.failure = FleetError("gone")
    await server.generate(max_new_tokens=2)
    series = server.series()
    lost, ran = (sum(series[f'tgi_batch_inference_{kind}{{method="{method}"}}'] for method in ("prefill", "decode"))
                 for kind in ("failure", "success"))
    assert lost >= 1
    assert ran == 2
    assert series["tgi_request_success"] == 1


@pytest.mark.parametrize(("path", "body"), [
    ("/generate", {"inputs": "a"}), ("/generate_stream", {"inputs": "a"}), ("/v1/completions", {"prompt": "a"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})])
@pytest.mark.parametrize(("broken", "name"), [(Groups, "submit"), (Tokenizer, "encode"), (ChatTemplate, "render")])
async def test_what_nobody_foresaw_is_a_failure(
    start: Start, demo: ChatTemplate, monkeypatch: pytest.MonkeyPatch, path: str, body: object, broken: type, name: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("ours")

    server = await start(template=demo)
    monkeypatch.setattr(broken, name, fail)
    text = await (await server.post(path, body)).text()
    has_failed = broken is not ChatTemplate or "chat" in path
    assert ("Internal server error" in text) == has_failed
    series = server.series()
    assert series["tgi_request_count"] == 1
    assert series['tgi_request_failure{err="generation"}'] == has_failed
    assert series["tgi_request_success"] == (not has_failed)
    await server.until_idle()


def test_each_failure_has_its_series() -> None:
    """An error that names another would begin a series that no dashboard knows."""
    named = {error.metric for error in _all_errors(RouterError)}
    text = Metrics(LIMITS).exposition().decode()
    assert {kind for kind in named if f'tgi_request_failure{{err="{kind}"}} 0.0' not in text} == set()


def _all_errors(base: type[RouterError]) -> list[type[RouterError]]:
    return [base, *(error for derived in base.__subclasses__() for error in _all_errors(derived))]


async def test_the_form_of_metrics(server: Server) -> None:
    text = await (await server.client.get("/metrics")).text()
    assert "# TYPE tgi_request_count counter\ntgi_request_count 0.0\n" in text
    assert "# TYPE tgi_queue_size gauge\ntgi_queue_size 0.0\n" in text
    assert 'tgi_request_failure{err="overloaded"} 0.0\n' in text
    bounds = [line for line in text.splitlines() if line.startswith("tgi_request_queue_duration_bucket")]
    assert len(bounds) == 36
    assert float(bounds[0].split('"')[1]) == pytest.approx(0.00015)
    assert float(bounds[34].split('"')[1]) == pytest.approx(145.61, abs=0.01)
    assert bounds[35] == 'tgi_request_queue_duration_bucket{le="+Inf"} 0.0'
    assert text.count("tgi_request_input_length_bucket{") == 101
    assert "_created" not in text
    parsed = {family.name: family for family in text_string_to_metric_families(text)}
    counters = {name for name, family in parsed.items() if family.type == "counter"}
    assert {"tgi_request_count", "penstock_requests", "penstock_prompt_tokens"} <= counters


async def test_the_ends_of_counters(server: Server) -> None:
    """By Prometheus' convention `_total`, but for TGI's; ours are told by their names of before, too."""
    await server.generate(max_new_tokens=2)
    text = await (await server.client.get("/metrics")).text()
    counters = set(re.findall("^# TYPE (\\w+) counter$", text, re.MULTILINE))
    assert not [name for name in counters if name.startswith("tgi_") and name.endswith("_total")]
    ours = {name for name in counters if not name.startswith("tgi_")}
    assert {f"{name.removesuffix('_total')}_total" for name in ours} <= ours
    series = server.series()
    for name in ("penstock_generated_tokens", 'penstock_requests{route="/generate",status="200"}'):
        bare, brace, labels = name.partition("{")
        assert series[name] == series[f"{bare}_total{brace}{labels}"] > 0
