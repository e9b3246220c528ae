"""Arguments of vLLM's `LLM` that have nothing to set here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Foreign:
    """An argument, why it has nothing to set, and the values that ask for nothing. With `is_told` other values are
    taken, with a line in the log, for they could change no answer; else they are refused."""

    why: str
    neutral: tuple[object, ...] = ()
    is_told: bool = False


_SAME = "prefixes are always shared, and no answer depends on it"

FOREIGN = {
    "trust_remote_code": Foreign("a checkpoint's code is never run", (False,)),
    "enable_prefix_caching": Foreign(_SAME, (True,)),
    "enable_chunked_prefill": Foreign("long prompts are always computed in parts", (True,)),
    "skip_tokenizer_init": Foreign("prompts may be token ids, and answers have a text all the same", (False,)),
    "tokenizer_mode": Foreign("there is one kind of tokenizer", ("auto", "hf")),
    "tokenizer_revision": Foreign("give a directory as `tokenizer`"),
    "load_format": Foreign("the form of a file is seen from the file", ("auto", "safetensors", "gguf")),
    "task": Foreign("models generate", ("auto", "generate")),
    "runner": Foreign("models generate", ("auto", "generate")),
    "generation_config": Foreign("parameters that are not given are those of `SamplingParams`", ("vllm",)),
    "disable_log_stats": Foreign("nothing is logged; `get_metrics` has the numbers", (True, False)),
    "disable_custom_all_reduce": Foreign("there is no all-reduce, but sums in a fixed order", (False,), is_told=True),
    "distributed_executor_backend": Foreign("shards are processes; give `groups` for those elsewhere", ("mp",)),
    "swap_space": Foreign("sequences that give way are computed anew", (0,), is_told=True),
    "cpu_offload_gb": Foreign("all weights are on the device", (0,)),
    "max_loras": Foreign("`max_adapter_memory` bounds adapters", is_told=True),
    "max_lora_rank": Foreign("adapters of any rank are taken; `max_adapter_memory` bounds them", is_told=True),
    "max_cpu_loras": Foreign("`max_adapter_memory` bounds adapters", is_told=True),
}
