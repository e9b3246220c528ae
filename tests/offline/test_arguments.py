"""The arguments of `LLM`: which settings they become, and how those that are not taken are refused."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from penstock import LLM
from penstock.offline.arguments import NO_LIMIT, NUM_SEQUENCES, launcher_config

WRONG: list[tuple[Mapping[str, Any], type[Exception], str]] = [
    ({"moel": "x"}, TypeError, "there is no argument `moel`"),
    ({"limit_mm_per_prompt": {"image": 1}}, TypeError, "there is no argument `limit_mm_per_prompt`"),
    ({"port": 3000}, TypeError, "there is no argument `port`"),
    ({"lora_adapters": "a"}, TypeError, "there is no argument `lora_adapters`"),
    ({"seed": "x"}, TypeError, "`seed` must be an integer, or None. Given: 'x'"),
    ({"seed": 1.5}, TypeError, "`seed` must be an integer, or None. Given: 1.5"),
    ({"speculative_config": "ngram"}, TypeError, "`speculative_config` must be a dict, .* Given: 'ngram'"),
    ({"speculative_config": {"num_speculative_tokens": 3}, "speculate": 4}, ValueError,
     "`speculate` and `speculative_config` are two words for the same"),
    ({"enforce_eager": True, "cuda_graphs": [1, 2]}, ValueError, "`cuda_graphs` and `enforce_eager` are two words"),
    ({"cuda_graphs": ["one"]}, ValueError, "`cuda_graphs`: 'one' is not a list of numbers"),
    ({"trust_remote_code": True}, ValueError, "`trust_remote_code` = True is not taken: a checkpoint's code is never"),
    ({"enable_prefix_caching": False}, ValueError, "prefixes are always shared"),
    ({"dtype": "int3"}, ValueError, "`dtype`: .*Given: 'int3'"),
    ({"quantization": "exl2"}, ValueError, "`quantize` exl2|`quantization` exl2"),
    ({"quantization": "nonsense"}, ValueError, "`quantization`: 'nonsense' is not one of"),
    ({"kv_memory": "much"}, ValueError, "`kv_memory`: 'much' is not a number of bytes"),
    ({"max_model_len": 0}, ValueError, "`max_model_len`: Input should be greater than 0. Given: 0"),
    ({"max_model_len": 1}, ValueError, "`max_model_len` must be >= 2. Given: 1"),
    ({"tensor_parallel_size": 0}, ValueError, "`tensor_parallel_size` must be a number from 1 on. Given: 0"),
    ({"gpu_memory_utilization": 1.5}, ValueError, "`gpu_memory_utilization`: .*less than or equal to 1. Given: 1.5"),
    ({"speculative_config": {"method": "eagle", "num_speculative_tokens": 3}}, ValueError, "`method` of `speculative_"),
    ({"speculative_config": {"num_speculative_tokens": 3, "prompt_lookup_max": 4}}, ValueError, "`prompt_lookup_max`"),
    ({"speculative_config": {"model": "m"}}, ValueError, "`num_speculative_tokens` of `speculative_config` must be"),
    ({"draft_model_id": "m"}, ValueError, "`draft_model_id` needs a `speculate` above 0"),
    ({"groups": "nowhere"}, ValueError, "`groups`: 'nowhere' is none of"),
    ({"groups": "10.0.0.1:4000"}, ValueError, "`groups`: 10.0.0.1:4000 is not reached in the clear"),
    ({"model": ""}, ValueError, "`model` is missing"),
    *(({"groups": "127.0.0.1:4000", **of_shards}, ValueError, f"`{name}` concerns shards, and with `groups` none are")
      for of_shards in ({"dtype": "float16"}, {"quantization": "int8"}, {"kv_memory": "4GiB"}, {"threads": 1},
                        {"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2}, {"enforce_eager": True},
                        {"cuda_graphs": [1]},
                        {"speculative_config": {"num_speculative_tokens": 3, "model": "m"}})
      for name in of_shards),
    ({"watermark_gamma": 0.5}, TypeError, "there is no argument `watermark_gamma`"),
]


@pytest.mark.parametrize(("arguments", "kind", "sentence"), WRONG, ids=lambda case: str(case)[:40])
def test_an_argument_that_is_not_taken_is_refused_by_name(
    arguments: Mapping[str, Any], kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        launcher_config({"model": "m", **arguments})


@pytest.mark.parametrize(("arguments", "settings"), [
    ({"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, {"num_shard": 4, "pipeline_parallel_size": 2}),
    ({"dtype": "auto"}, {"dtype": None}),
    ({"dtype": "half"}, {"dtype": "float16"}),
    ({"kv_cache_dtype": "fp8"}, {"kv_cache_dtype": "fp8_e4m3fn"}),
    ({"quantization": "int8"}, {"quantize": "int8"}),
    ({"max_model_len": 100, "max_num_seqs": 7, "max_num_batched_tokens": 64, "max_logprobs": 3},
     {"max_total_tokens": 100, "max_batch_size": 7, "max_batch_prefill_tokens": 64, "max_top_n_tokens": 3}),
    ({"enforce_eager": True}, {"cuda_graphs": (0,)}),
    ({"cuda_graphs": [1, 2], "max_batch_total_tokens": 999, "master_port": 4000, "seed": -3, "enforce_eager": False},
     {"cuda_graphs": (1, 2), "max_batch_total_tokens": 999, "master_port": 4000}),
    ({"enable_lora": True}, {"allow_runtime_adapters": True, "takes_adapters": True}),
    ({"speculative_config": {"method": "ngram", "num_speculative_tokens": 5}}, {"speculate": 5}),
    ({"speculative_config": {"model": "d", "num_speculative_tokens": 2}}, {"speculate": 2, "draft_model_id": "d"}),
    ({"kv_memory": "2MiB", "threads": 3, "device": "cpu"}, {"kv_memory": 2 << 20, "threads": 3, "device": "cpu"}),
    ({"groups": ["127.0.0.1:4000", "127.0.0.1:4001"]}, {"groups": "127.0.0.1:4000,127.0.0.1:4001"}),
    ({"trust_remote_code": False, "enable_prefix_caching": True, "enable_chunked_prefill": None}, {}),
    ({}, {"max_batch_size": NUM_SEQUENCES, "max_shard_downtime": NO_LIMIT}),
    ({"max_shard_downtime": 5}, {"max_shard_downtime": 5}),
    ({"groups": "127.0.0.1:4000"}, {"max_shard_downtime": 120}),
    ({"disable_log_stats": False}, {}),
    ({"disable_log_stats": True}, {}),
])
def test_arguments_become_settings(arguments: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    config = launcher_config({"model": "m", **arguments})
    assert {name: getattr(config, name) for name in settings} == settings


@pytest.mark.parametrize(("arguments", "sentence"), [
    ({"max_lora_rank": 16}, "`max_lora_rank` has no effect: adapters of any rank are taken"),
    ({"gpu_memory_utilization": 0.5, "device": "cpu"},
     "`gpu_memory_utilization` has no effect: on a processor `kv_memory` says how much memory"),
    ({"max_num_seqs": 64, "max_num_batched_tokens": 32},
     "`max_num_seqs` has no effect: a step of `max_num_batched_tokens` 32 has room for fewer sequences"),
    ({"deterministic": True, "device": "cpu"}, "`deterministic` has no effect: no answer of a processor changes"),
])
def test_the_log_tells_of_an_argument_without_effect(
    arguments: Mapping[str, Any], sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        launcher_config({"model": "m", **arguments})
    assert sentence in caplog.text


def test_the_log_tells_nothing_of_arguments_that_were_not_given(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="there is no directory /nowhere"):
        LLM("/nowhere", max_num_batched_tokens=128)
    assert "max_num_seqs" not in caplog.text


def test_the_log_tells_as_much_as_the_environment_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loggers = [logging.getLogger(name) for name in ("penstock", "penstock.launcher")]
    levels = [logger.level for logger in loggers]
    monkeypatch.setenv("LOG_LEVEL", "error,text_generation_launcher=debug")
    try:
        with pytest.raises(ValueError, match="there is no directory /nowhere"):
            LLM("/nowhere")
        assert [logger.level for logger in loggers] == [logging.ERROR, logging.DEBUG]
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def test_adapters_make_use_of_their_memory(caplog: pytest.LogCaptureFixture) -> None:
    launcher_config({"model": "m", "enable_lora": True, "max_adapter_memory": "512MiB"})
    assert "max_adapter_memory" not in caplog.text
