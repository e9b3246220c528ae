"""Our settings that have other names in vLLM."""

import re

from penstock.system.setting import settings
from penstock.system.settings import ServerSettings

NAMES = {
    "model": "model_id", "quantization": "quantize", "max_model_len": "max_total_tokens",
    "max_num_seqs": "max_batch_size", "max_num_batched_tokens": "max_batch_prefill_tokens",
    "gpu_memory_utilization": "cuda_memory_fraction", "download_dir": "huggingface_hub_cache",
    "max_logprobs": "max_top_n_tokens",
}
"""By vLLM's names."""


_GIVEN = {setting: name for name, setting in NAMES.items()} | {
    "allow_runtime_adapters": "enable_lora", "num_shard": "tensor_parallel_size"}
_SETTINGS = frozenset(each.name for each, _, _ in settings(ServerSettings))


def in_given_words(sentence: str) -> str:
    """Returns a sentence that names settings as the caller has written them: by vLLM's names, and not as options of a
    command."""
    return re.sub(r"`(\w+)`|(?<![\w-])--([a-z][a-z-]*)", _given_word, sentence)


def _given_word(found: re.Match[str]) -> str:
    if found[1]:
        return f"`{_GIVEN.get(found[1], found[1])}`"
    setting = found[2].replace("-", "_")
    return f"`{_GIVEN.get(setting, setting)}`" if setting in _SETTINGS else found[0]
