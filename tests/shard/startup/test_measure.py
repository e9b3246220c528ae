"""A model that computes NaN is refused by the step that every start begins with."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from penstock.shard.startup.measure import measure_step_tokens, settle_step_tokens
from penstock.shard.weights.stored import CheckpointError
from tests.shard.ranks import make_config
from tests.tiny_models import make_tiny

NORM = "model.layers.1.input_layernorm.weight"
MESSAGE = r"the model computes something that is not a number \(NaN\): its weights are damaged, or too large for their "


@pytest.fixture
def spoil(tmp_path: Path) -> Callable[[Callable[[dict[str, Tensor]], Any]], Path]:
    """Makes a model and changes its weights."""
    def make(change: Callable[[dict[str, Tensor]], Any]) -> Path:
        model = make_tiny(tmp_path / "model")
        weights = load_file(model / "model.safetensors")
        change(weights)
        save_file(weights, model / "model.safetensors")
        return model
    return make


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_damaged_weights(spoil: Callable[..., Path], value: float) -> None:
    model = spoil(lambda weights: weights[NORM].fill_(value))
    with pytest.raises(CheckpointError, match=MESSAGE):
        measure_step_tokens(Executor(make_config(model), Group()), Group())


def test_damage_that_comes_while_the_group_is_away(spoil: Callable[..., Path]) -> None:
    """A shard that takes a dead one's place does not measure, and has its trial step all the same."""
    executor = Executor(make_config(spoil(lambda weights: weights[NORM][5].fill_(float("nan")))), Group())
    found = SimpleNamespace(step_tokens=64, is_whole=True)
    executor.memory.kept = SimpleNamespace(found=found)  # type: ignore[assignment]
    with pytest.raises(CheckpointError, match=MESSAGE):
        settle_step_tokens(executor, Group())


def test_numbers_too_large_for_their_format(spoil: Callable[..., Path]) -> None:
    model = spoil(lambda weights: weights["model.layers.0.mlp.up_proj.weight"].mul_(1e5))
    assert measure_step_tokens(Executor(make_config(model, "float32"), Group()), Group()) >= 16
    with pytest.raises(CheckpointError, match=MESSAGE):
        measure_step_tokens(Executor(make_config(model, "float16"), Group()), Group())


def test_a_damaged_token_is_no_reason_to_refuse_a_model(spoil: Callable[..., Path]) -> None:
    """It is found when a request has it."""
    model = spoil(lambda weights: weights["model.embed_tokens.weight"][150].fill_(torch.nan))
    executor = Executor(make_config(model), Group())
    assert measure_step_tokens(executor, Group(), most=16) == 16
