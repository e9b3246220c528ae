"""Series under vLLM's names, for autoscalers, gateways and boards that ask for these."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import Metric

NAMES: Mapping[str, tuple[str, ...]] = {
    "tgi_batch_current_size": ("num_requests_running",),
    "tgi_queue_size": ("num_requests_waiting",),
    "penstock_kv_usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    "penstock_preemptions": ("num_preemptions",),
    "penstock_prompt_tokens": ("prompt_tokens",),
    "penstock_generated_tokens": ("generation_tokens",),
    "penstock_time_to_first_token_seconds": ("time_to_first_token_seconds",),
    "penstock_inter_token_latency_seconds": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "tgi_request_duration": ("e2e_request_latency_seconds",),
    "tgi_request_queue_duration": ("request_queue_time_seconds",),
    "tgi_request_inference_duration": ("request_inference_time_seconds",),
    "tgi_request_input_length": ("request_prompt_tokens",),
    "tgi_request_generated_tokens": ("request_generation_tokens",),
}
"""vLLM's names of series that mean the same as ours; older versions had some under another one."""
_PREFIX = "vllm:"
_BLOCK_SIZE, _NUM_BLOCKS = "penstock_kv_block_size", "penstock_kv_num_blocks"


@dataclass(frozen=True, slots=True)
class VllmNames:
    """Tells series once more as those of vLLM's `model`."""

    model: str

    def of(self, metrics: Iterable[Metric]) -> Iterator[Metric]:
        """Yields those of these metrics that vLLM has, with the labels that all of its series have."""
        numbers = {}
        labels = {"model_name": self.model, "engine": "0"}
        for metric in metrics:
            for name in NAMES.get(metric.name, ()):
                alias = Metric(_PREFIX + name, metric.documentation, metric.type)
                alias.samples = [
                    sample._replace(name=sample.name.replace(metric.name, alias.name, 1), labels=labels | sample.labels)
                    for sample in metric.samples]
                yield alias
            if metric.name in (_BLOCK_SIZE, _NUM_BLOCKS):
                numbers[metric.name] = str(int(metric.samples[0].value))
        config = Metric(f"{_PREFIX}cache_config_info", "The KV memory: tokens of a block, and blocks", "gauge")
        config.add_sample(config.name, labels | {
            "block_size": numbers.get(_BLOCK_SIZE, "0"), "num_gpu_blocks": numbers.get(_NUM_BLOCKS, "0")}, 1.0)
        yield config
