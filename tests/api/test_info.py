"""The routes that tell of the server, of a text, and of mistakes in the address."""

import asyncio

import pytest

from router.engine import Engine
from router.metrics import Metrics
from tests.api.conftest import Server, Start, until
from tests.fakes import LIMITS


async def test_info(server: Server) -> None:
    response = await server.client.get("/info")
    assert await response.json() == {
        "model_id": "demo", "model_sha": "abc", "model_pipeline_tag": None, "max_concurrent_requests": 128,
        "max_best_of": 2, "max_stop_sequences": 4, "max_input_tokens": 1023, "max_total_tokens": 1024,
        "validation_workers": 2, "max_client_batch_size": 4, "router": "text-generation-router", "version": "0.1.0",
        "sha": None, "docker_label": None, "model_dtype": "float32", "model_device_type": "cpu",
        "waiting_served_ratio": 0.0, "max_batch_total_tokens": 4096, "max_waiting_tokens": 0, "max_batch_size": 128,
        "numerics": "scripted"}


async def test_models(server: Server) -> None:
    response = await server.client.get("/v1/models")
    assert await response.json() == {
        "object": "list", "data": [{"id": "demo", "object": "model", "created": 0, "owned_by": "demo"}]}


async def test_tokenize(server: Server) -> None:
    response = await server.post("/tokenize", {"inputs": "é 😀 abc<|im_end|>", "parameters": {"truncate": 1}})
    tokens = await response.json()
    data = "é 😀 abc<|im_end|>".encode()
    assert tuple(token["id"] for token in tokens) == await server.tokenizer.encode(data.decode())
    assert all(token["text"] == data[token["start"]:token["stop"]].decode() for token in tokens)
    assert tokens[-1] == {"id": 2, "text": "<|im_end|>", "start": len(data) - 10, "stop": len(data)}
    assert await (await server.post("/tokenize", {"inputs": ""})).json() == []


async def test_addresses_that_are_not_there(server: Server) -> None:
    response = await server.client.get("/nothing")
    assert (response.status, await response.read()) == (404, b"")
    response = await server.client.get("/generate")
    assert (response.status, await response.read(), response.headers["allow"]) == (405, b"", "POST")
    response = await server.client.post("/info")
    assert (response.status, await response.read()) == (405, b"")


async def test_an_unexpected_failure(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("ours")

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "submit", fail)
        response = await server.post("/generate", {"inputs": "a"})
        assert (response.status, await response.json()) == (
            500, {"error": "Internal server error", "error_type": "internal"})
    assert "KeyError: 'ours'" in caplog.text
    assert (await server.post("/generate", {"inputs": "a"})).status == 200
    await server.until_idle()


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
    server.fleet.may_answer.clear()
    waiting = asyncio.create_task(server.generate("a", max_new_tokens=4))
    await until(lambda: bool(server.fleet.plans))
    await asyncio.sleep(0.02)
    server.fleet.may_answer.set()
    await waiting
    series = server.series()
    first, between = "penstock_time_to_first_token_seconds", "penstock_inter_token_latency_seconds"
    assert (series[f"{first}_count"], series[f"{between}_count"]) == (1, 3)
    assert series[f'{first}_bucket{{le="0.02"}}'] == 0
    assert 0.02 < series[f"{first}_sum"] <= series["tgi_request_duration_sum"]
    assert series[f"{first}_sum"] + series[f"{between}_sum"] == pytest.approx(
        series["tgi_request_duration_sum"], abs=0.01)


async def test_metrics_of_the_prefix_cache(start: Start) -> None:
    server = await start(answer=" b")
    for _ in range(2):
        await server.generate(" a" * 40, max_new_tokens=1)
    assert server.series()["penstock_prefix_hit_tokens"] == 32


def test_metrics_of_plans_and_losses() -> None:
    metrics = Metrics(LIMITS)
    metrics.planned(hit_tokens=32, preempted=2)
    metrics.planned(hit_tokens=16, preempted=0)
    metrics.replayed(3)
    metrics.group_restarted()
    metrics.occupancy(1, 2, used_blocks=3, free_blocks=4, wasted_slots=5)
    lines = metrics.exposition().decode().splitlines()
    assert {"penstock_prefix_hit_tokens 48.0", "penstock_preemptions 2.0", "penstock_replays 3.0",
            "penstock_group_restarts 1.0", "penstock_kv_wasted_slots 5.0", 'penstock_kv_blocks{state="used"} 3.0',
            "tgi_queue_size 1.0", "tgi_batch_current_size 2.0"} <= set(lines)


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
    assert "_total" not in text
    assert "_created" not in text
