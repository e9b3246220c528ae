"""Our settings that have other names in vLLM."""

import re

NAMES = {
    "model": "model_id", "quantization": "quantize", "max_model_len": "max_total_tokens",
    "max_num_seqs": "max_batch_size", "max_num_batched_tokens": "max_batch_prefill_tokens",
    "gpu_memory_utilization": "cuda_memory_fraction", "download_dir": "huggingface_hub_cache",
    "max_logprobs": "max_top_n_tokens",
}
"""By vLLM's names."""


def in_given_words(sentence: str) -> str:
    """Returns a sentence with vLLM's names of settings, as the caller has written them."""
    given = {setting: name for name, setting in NAMES.items()} | {"allow_runtime_adapters": "enable_lora"}
    return re.sub(r"`(\w+)`", lambda found: f"`{given.get(found[1], found[1])}`", sentence)
