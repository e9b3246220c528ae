"""The targets on one H200 for a Llama of 8 billion parameters in bfloat16, and whether they were met."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.bench.gpu.records import Record, Records
from penstock.bench.gpu.scale import VLLM, Scale, attention_name, mixed_name, sample_name


@dataclass(frozen=True)
class Target:
    name: str
    part: str
    record: str
    column: str
    at_least: float = -math.inf
    at_most: float = math.inf

    def judge(self, records: Records) -> Record:
        found = records.find(self.part, self.record, self.column)
        wanted = f"≥ {self.at_least:g}" if self.at_least > -math.inf else f"≤ {self.at_most:g}"
        verdict = "not measured" if math.isnan(found) else (
            "met" if self.at_least <= found <= self.at_most else "missed")
        return Record("targets", self.name, {"target": f"{wanted} {self.column}", "found": found, "verdict": verdict})


def targets(scale: Scale) -> Iterator[Target]:
    prompt = scale.prompt
    for batch, share in ((1, 85), (8, 85), (128, 75)):
        yield Target(f"decode, batch {batch}", "engine", f"decode, {batch} × {prompt}", "% of floor", at_least=share)
    yield Target("prefill, 4k", "engine", "prefill 4096", "% of floor", at_least=65)
    yield Target("decode attention, batch 128, 4k context", "attention", attention_name(128, 4096, 1), "% of copy",
                 at_least=80)
    for case in ("temperature 0.8, top-p 0.95", "top-k 50"):
        yield Target(f"sampling, {case}", "attention", sample_name(case, 128), "us", at_most=60)
    for batch, chunk in scale.mixed:
        yield Target(f"host time of a mixed step, chunk of {chunk}", "engine", mixed_name(batch, prompt, chunk),
                     "host, ms", at_most=1.5)
    for batch in (1, 8, 128):
        yield Target(f"idle between decode steps, batch {batch}", "profile", f"decode, {batch} × {prompt}",
                     "between steps %", at_most=3)
    for batch in (1, 8, 128):
        yield Target(f"deterministic decode, batch {batch}", "deterministic", f"decode, {batch} × {prompt}", "price %",
                     at_most=20)
    yield Target("deterministic prefill, 4k", "deterministic", "prefill 4096", "price %", at_most=35)
    yield Target("served, 64 streams, beside vLLM", "server", VLLM, "ours ÷ theirs", at_least=0.9)
    yield Target("served, 64 streams, beside continuous batching", "transformers",
                 f"continuous batching, 64 × {prompt}", "server ÷ theirs", at_least=3)
    for batch in (64, 128):
        yield Target(f"engine beside continuous batching, batch {batch}", "transformers",
                     f"continuous batching, {batch} × {prompt}", "ours ÷ theirs", at_least=3)
