"""The form of the JSON that `penstock bench serve` writes, and what must hold in it."""

from itertools import pairwise
from typing import Any

import pytest

NUMBER = {"type": "number", "minimum": 0}
COUNT = {"type": "integer", "minimum": 0}
TIMES = {"type": ["object", "null"], "additionalProperties": False,
         "required": ["mean", "p50", "p75", "p90", "p99"],
         "properties": dict.fromkeys(["mean", "p50", "p75", "p90", "p99"], NUMBER)}
RUN_FIELDS: dict[str, Any] = {
    "lengths": {"type": ["object", "null"], "additionalProperties": False, "required": ["prompt", "output"],
                "properties": {"prompt": COUNT, "output": COUNT}},
    "duration_s": NUMBER, "is_interrupted": {"type": "boolean"}, "requests": COUNT, "answered": COUNT, "failed": COUNT,
    "failures": {"type": "array", "items": {
        "type": "object", "additionalProperties": False, "required": ["kind", "count", "example"],
        "properties": {"kind": {"type": "string"}, "count": COUNT, "example": {"type": "string"}}}},
    "prompt_tokens": {"type": ["integer", "null"]}, "output_tokens": COUNT,
    "tokens_counted_by": {"enum": ["server", "events", "chunks", "nothing"]},
    "requests_per_second": NUMBER, "output_tokens_per_second": NUMBER,
    "ttft_ms": TIMES, "itl_ms": TIMES, "tpot_ms": TIMES, "e2e_ms": TIMES,
    "goodput": {"type": ["object", "null"], "additionalProperties": False,
                "required": ["limits_ms", "requests_per_second"],
                "properties": {"limits_ms": {"type": "object", "additionalProperties": NUMBER},
                               "requests_per_second": NUMBER}}}
RUN = {"type": "object", "additionalProperties": False, "required": list(RUN_FIELDS),
       "properties": {**RUN_FIELDS, "concurrency": NUMBER, "rate": NUMBER},
       "oneOf": [{"required": ["concurrency"]}, {"required": ["rate"]}]}
SCHEMA = {
    "type": "object", "additionalProperties": False,
    "required": ["version", "url", "api", "is_streamed", "prompts", "seed", "fields", "runs"],
    "properties": {"version": {"const": 1}, "url": {"type": "string"}, "api": {"type": "string"},
                   "is_streamed": {"type": "boolean"}, "prompts": {"type": "string"}, "seed": {"type": "integer"},
                   "fields": {"type": "object"}, "runs": {"type": "array", "items": RUN}}}


def check_run(run: dict[str, Any]) -> None:
    """What holds of every run with streamed answers of several tokens each."""
    assert run["answered"] + run["failed"] == run["requests"]
    assert run["output_tokens_per_second"] * run["duration_s"] == pytest.approx(run["output_tokens"])
    assert run["requests_per_second"] * run["duration_s"] == pytest.approx(run["answered"])
    for metric in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"):
        shares = [run[metric][f"p{percent}"] for percent in (50, 75, 90, 99)]
        assert all(lower <= higher for lower, higher in pairwise(shares))
        assert 0 < run[metric]["mean"] <= 1e3 * run["duration_s"]
    assert run["ttft_ms"]["p50"] < run["e2e_ms"]["p50"]
