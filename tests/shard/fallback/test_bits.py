"""Models of transformers with our ops in them: its logits, and the bits that the trial at the start says they keep."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, WhisperConfig

from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.fallback.alone import OwnStates
from penstock.shard.fallback.model import TransformersModel, _context_length
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.model_options import AS_STORED
from penstock.shard.startup.bit_trial import keeps_bits
from penstock.shard.startup.measure import measure_step_tokens
from tests.family_models import make_family
from tests.shard.equalities import (
    CHUNKS,
    IDS,
    first_in_chunks,
    one_by_one,
    theirs,
    together,
    twice_with_losses,
    typical_requests,
)
from tests.shard.ranks import make_config
from tests.tiny_models import make_tiny, prompt_logits

PAGED = ("llama", "qwen3, window, biases", "gemma2", "gpt2")


def make(path: Path, name: str) -> Path:
    return make_tiny(path, "llama") if name == "llama" else make_family(path, name)


def config_of(model: Path, dtype: str = "bfloat16") -> ShardConfig:
    return replace(make_config(model, dtype), model_impl="transformers")


@pytest.mark.parametrize("name", PAGED)
def test_logits_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    model = TransformersModel.load(make(tmp_path, name), torch.float32, Group(), AS_STORED)
    logits = prompt_logits(model, IDS)
    assert logits is not None
    assert logits.dtype == torch.float32
    assert (logits - theirs(tmp_path, torch.float32)).abs().max() <= 1e-4


@pytest.mark.parametrize("name", [PAGED[0], pytest.param(PAGED[1], marks=pytest.mark.slow)])
def test_dense_models_keep_their_bits(tmp_path: Path, name: str) -> None:
    config, requests = config_of(make(tmp_path / "model", name)), typical_requests()
    executor = Executor(config, Group())
    assert executor.model.facts.implementation == "transformers"
    assert keeps_bits(executor, Group())
    expected = one_by_one(config, requests, tmp_path)
    assert together(config, requests, tmp_path) == expected
    assert first_in_chunks(config, requests, tmp_path) == [expected[:1]] * len(CHUNKS)
    first, second, counted = twice_with_losses(config, requests)
    assert first == second == expected
    assert counted.hit_tokens
    assert counted.replayed


def test_a_model_whose_code_sums_otherwise_in_a_batch_is_found_out(tmp_path: Path) -> None:
    """Its experts are multiplied by torch, in another order for each number of rows."""
    executor = Executor(config_of(make_family(tmp_path, "qwen3_moe"), "float32"), Group())
    assert not keeps_bits(executor, Group())


def test_a_model_that_is_replayed_otherwise_than_it_was_computed_is_found_out(tmp_path: Path) -> None:
    """GPT-J keeps keys and values in a cache of transformers' own: one token behind others has other bits than whole.
    """
    executor = Executor(config_of(make_family(tmp_path, "gptj"), "float32"), Group())
    assert not keeps_bits(executor, Group())


def test_sequences_with_caches_of_their_own_go_with_the_stream(tmp_path: Path) -> None:
    path = make_family(tmp_path, "gptj")
    executor = Executor(config_of(path, "float32"), Group())
    keeps_bits(executor, Group())
    measure_step_tokens(executor, Group(), 32)
    assert not any(states.sequences for states in executor.memory.caches if isinstance(states, OwnStates))
    with pytest.raises(ModelConfigError, match="--kv-cache-dtype int8: the model keeps no keys"):
        Executor(replace(config_of(path, "float32"), kv_cache_dtype="int8"), Group())


def test_the_context_ends_where_rotations_would_change() -> None:
    layers = {"full_attention": {"rope_type": "longrope", "original_max_position_embeddings": 64}}
    config = LlamaConfig(max_position_embeddings=256)
    assert _context_length(config) == 256
    config.rope_parameters = layers
    assert _context_length(config) == 64
    assert _context_length(WhisperConfig(max_target_positions=48)) == 48


def test_a_model_with_a_state_goes_on_where_it_was(tmp_path: Path) -> None:
    """Each sequence has a state of its own, which begins anew when all is lost."""
    config, requests = config_of(make_family(tmp_path / "model", "bamba"), "float32"), typical_requests()[:3]
    expected = [[sampled.token_id for sampled in output] for output in one_by_one(config, requests, tmp_path)]
    first, second, counted = twice_with_losses(config, requests)
    assert [[sampled.token_id for sampled in output] for output in first] == expected
    assert [[sampled.token_id for sampled in output] for output in second] == expected
    assert counted.hit_tokens == 0
    assert counted.replayed
