"""What a model's configuration refuses, before its weights are read."""

from pathlib import Path
from typing import Any

import pytest

from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.startup.load import check_settings, load
from tests.family_models import make_family
from tests.tiny_models import make_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a context of 128 tokens, whose weights are gone."""
    folder = make_tiny(tmp_path_factory.mktemp("model"), context=128)
    for file in folder.glob("*.safetensors"):
        file.unlink()
    return folder


@pytest.mark.parametrize(("settings", "sentence"), [
    ({"max_total_tokens": 129}, "`max_total_tokens` must be <= the model's context of 128 tokens. Given: 129"),
    ({"max_input_tokens": 128}, "`max_input_tokens` must be < the model's context of 128 tokens. Given: 128")])
def test_limits_beyond_the_context_are_refused_before_the_load(
    model: Path, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ModelConfigError) as caught:
        load(ShardConfig(model, listen="unix:/s", **settings), Group())
    assert str(caught.value) == sentence


def test_limits_within_the_context(model: Path) -> None:
    check_settings(ShardConfig(model, max_total_tokens=128, max_input_tokens=127, speculate=4, adapter_memory=1))


def test_guesses_of_a_model_with_a_state(tmp_path: Path) -> None:
    folder = make_family(tmp_path, "qwen3_next")
    check_settings(ShardConfig(folder))
    with pytest.raises(ModelConfigError, match=r"`speculate` must be 0: the model carries a state .* Given: 2"):
        check_settings(ShardConfig(folder, speculate=2))


def test_adapters_of_a_model_that_transformers_computes(model: Path) -> None:
    with pytest.raises(ModelConfigError, match="as transformers computes it, takes no adapters"):
        check_settings(ShardConfig(model, model_impl="transformers", adapter_memory=1))
