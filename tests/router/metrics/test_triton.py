"""Series under Triton's names."""

import re
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.parser import text_string_to_metric_families

from penstock.router.errors import Dropped, GenerationError, Overloaded, ValidationError
from penstock.router.metrics.metrics import Metrics
from penstock.router.metrics.triton import TritonNames, statistics
from penstock.router.scheduling.occupancy import Occupancy
from tests.fakes import LIMITS

LABELS = {"model": "org/m", "version": "1"}


def make(triton: TritonNames | None = None) -> Metrics:
    metrics = Metrics(LIMITS, triton=triton)
    metrics.succeeded()
    for _ in range(2):
        metrics.ended(total=2.0, validation=0.25, queue=0.5, inference=1.0, num_tokens=4, num_accepted=0)
    for error in (Overloaded(), Dropped(), GenerationError("x"), ValidationError("x"), ValidationError("y")):
        metrics.failed(error)
    metrics.occupancy("", Occupancy(num_waiting=3))
    metrics.first_token(0.015)
    step: Any = SimpleNamespace(draft_time=0.0, forward_time=0.0, sample_time=0.0, energy_uj=None)
    metrics.step(cast(Any, SimpleNamespace(num_prompt_tokens=3)), step, [], 0.0, 0.0)
    metrics.step(cast(Any, SimpleNamespace(num_prompt_tokens=0)), step, [], 0.0, 0.0)
    return metrics


def test_they_say_what_ours_say() -> None:
    text = make(TritonNames("org/m")).exposition().decode()
    samples = {(sample.name.removesuffix("_total"), sample.labels.get("reason"), sample.labels.get("le")): sample
               for family in text_string_to_metric_families(text) for sample in family.samples
               if sample.name.startswith("nv_")}
    values = {name: sample.value for (name, reason, le), sample in samples.items() if reason is None and le is None}
    assert values == {
        "nv_inference_request_success": 1, "nv_inference_count": 2, "nv_inference_exec_count": 2,
        "nv_inference_pending_request_count": 3, "nv_inference_request_duration_us": 4_000_000,
        "nv_inference_queue_duration_us": 1_000_000, "nv_inference_compute_input_duration_us": 500_000,
        "nv_inference_compute_infer_duration_us": 2_000_000, "nv_inference_first_response_histogram_ms_count": 1,
        "nv_inference_first_response_histogram_ms_sum": 15.0}
    assert {reason: sample.value for (_, reason, _), sample in samples.items() if reason} == {
        "REJECTED": 1, "CANCELED": 1, "BACKEND": 1, "OTHER": 2}
    assert [samples["nv_inference_first_response_histogram_ms_bucket", None, le].value for le in ("10", "20", "+Inf")
            ] == [0, 1, 1]
    assert all(LABELS.items() <= sample.labels.items() for sample in samples.values())


def test_counters_keep_their_names_and_types() -> None:
    text = make(TritonNames("m")).exposition().decode()
    types = dict(re.findall(r"^# TYPE (nv_\S+) (\w+)$", text, re.MULTILINE))
    assert types["nv_inference_request_success"] == "counter"
    assert types["nv_inference_pending_request_count"] == "gauge"
    assert "_total" not in "".join(types)


def test_they_are_asked_for() -> None:
    assert "nv_" not in make().exposition().decode()


def test_numbers_of_statistics() -> None:
    found = statistics(make().gathered())
    assert (found.successes, sum(found.failures.values()), found.inferences, found.executions) == (1, 5, 2, 2)
    assert (found.total_seconds, found.queue_seconds) == (4.0, 1.0)
