"""Series under vLLM's names."""

import os
import re
import subprocess
import sys
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from penstock.contract.plan import Plan
from penstock.router.metrics.metrics import Metrics
from penstock.router.metrics.vllm import NAMES, VllmNames
from penstock.router.scheduling.occupancy import Occupancy
from tests.fakes import LIMITS
from tests.paths import ROOT

READ_BY_AUTOSCALERS = {
    "vllm:num_requests_running": 2.0, "vllm:num_requests_waiting": 1.0, "vllm:kv_cache_usage_perc": 0.75,
    "vllm:gpu_cache_usage_perc": 0.75, "vllm:num_preemptions_total": 2.0, "vllm:time_to_first_token_seconds_count": 1.0,
    "vllm:inter_token_latency_seconds_sum": 0.25, "vllm:time_per_output_token_seconds_sum": 0.25}


def make(vllm: VllmNames | None) -> Metrics:
    metrics = Metrics(LIMITS, vllm=vllm)
    metrics.occupancy("", Occupancy(1, 2, used_blocks=3, free_blocks=1, block_size=16))
    metrics.planned(Plan(0, (), preempted=(4, 5)), took=0.0)
    metrics.first_token(0.5)
    metrics.next_token(0.25)
    return metrics


def test_they_say_what_ours_say() -> None:
    samples = {sample.name: sample for family in text_string_to_metric_families(
        make(VllmNames('my "model"')).exposition().decode()) for sample in family.samples}
    assert {name: samples[name].value for name in READ_BY_AUTOSCALERS} == READ_BY_AUTOSCALERS
    assert samples["vllm:num_requests_waiting"].labels == {"model_name": 'my "model"', "engine": "0"}
    config = samples["vllm:cache_config_info"]
    assert (config.value, config.labels["block_size"], config.labels["num_gpu_blocks"]) == (1, "16", "4")


def test_each_has_one_of_ours_and_its_end() -> None:
    text = make(VllmNames("m")).exposition().decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))
    assert types["vllm:generation_tokens_total"] == "counter"
    for name, aliases in NAMES.items():
        kind = types[name]
        for alias in aliases:
            assert types[f"vllm:{alias}{'_total' * (kind == 'counter')}"] == kind
    assert len(re.findall("^# TYPE vllm:", text, re.MULTILINE)) == sum(map(len, NAMES.values())) + 1


def test_they_are_asked_for() -> None:
    assert "vllm:" not in make(None).exposition().decode()


def test_what_the_server_is() -> None:
    [line] = [line for line in make(None).exposition().decode().splitlines() if line.startswith("penstock_build_info")]
    assert re.fullmatch(r'penstock_build_info\{version="[\d.]+\S*",python_version="3\.\d+\.\d+\S*"\} 1\.0', line)


def test_processes_that_count_together(tmp_path: Path) -> None:
    """Names and labels are the same where the series are read from files."""
    script = tmp_path / "count.py"
    script.write_text("""
from pathlib import Path
from penstock.router.metrics.metrics import Metrics
from penstock.router.metrics.vllm import VllmNames
from penstock.router.scheduling.occupancy import Occupancy
from penstock.router.scheduling.wait_reasons import WaitReason
from tests.fakes import LIMITS
front = Metrics(LIMITS, Path("folder"), "engine", vllm=VllmNames("m"))
front.occupancy("a", Occupancy(3, waits={WaitReason.MEMORY: 1, WaitReason.NEW: 2}))
front.occupancy("b", Occupancy(1, waits={WaitReason.MEMORY: 1}))
front.rendered(0.25)
print(front.exposition().decode())
""")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, cwd=tmp_path, env={
            **os.environ, "PYTHONPATH": str(ROOT), "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "folder")})
    for line in ("penstock_preemptions_total 0.0", "penstock_preemptions 0.0",
                 'vllm:num_preemptions_total{model_name="m",engine="0"} 0.0',
                 'vllm:num_requests_waiting{model_name="m",engine="0"} 4.0',
                 'penstock_waiting_requests{reason="memory"} 2.0', 'penstock_waiting_requests{reason="new"} 2.0',
                 "penstock_chat_template_seconds_sum 0.25", "tgi_queue_size 4.0"):
        assert f"\n{line}\n" in done.stdout, line
