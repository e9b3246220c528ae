"""The sizes of models by their config.json, beside those of checkpoints and those that lectures give."""

from pathlib import Path

import pytest
import torch

from penstock.bench.planning.model_size import bytes_by_format, read_model_size
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.model_options import ModelOptions
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.format import memory_of
from tests.bench.planning.models import LLAMA_13B, MIXTRAL, OPT_13B, write
from tests.encoder_models import make_encoder
from tests.family_models import FAMILY_MODELS, make_family

UNREAD = {"deepseek_v3": "model.layers.2.", "qwen3_5, of images": "model.visual."}
"""The beginnings of the names of tensors that a checkpoint has for others."""


@pytest.mark.parametrize("keys", [LLAMA_13B, OPT_13B], ids=["llama", "opt"])
def test_a_model_of_13_billion_parameters_is_as_lectures_say(tmp_path: Path, keys: dict[str, object]) -> None:
    """26 GB of weights, and "1 MB" a token: 2 · 2 bytes · 40 layers · 5120 numbers are 819,200 bytes, rounded up."""
    size = read_model_size(write(tmp_path, keys))
    assert size.num_parameters == pytest.approx(13e9, rel=0.02)
    assert size.weight_bytes == pytest.approx(26e9, rel=0.02)
    assert size.kv_bytes() == 2 * 2 * 40 * 5120 == 819_200
    assert round(size.kv_bytes() / 1e6) == 1
    assert size.kv_bytes(4) == 819_200 / 4


def test_bytes_by_formats(tmp_path: Path) -> None:
    folder = write(tmp_path, LLAMA_13B)
    plain, wide = read_model_size(folder), read_model_size(folder, dtype="float32")
    assert (plain.format, wide.format, wide.weight_bytes) == ("float16", "float32", 2 * plain.weight_bytes)
    eight, four = (read_model_size(folder, quantize=name) for name in ("int8", "int4"))
    assert eight.weight_bytes == pytest.approx(13e9, rel=0.05)
    assert four.weight_bytes == pytest.approx(7e9, rel=0.05)
    assert read_model_size(folder, kv_dtype=torch.int8).kv_bytes() == 2 * 40 * (5120 + 4 * 40)  # and a scale for each


def test_a_quantised_checkpoint_has_its_own_bytes(tmp_path: Path) -> None:
    section = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
    size = read_model_size(write(tmp_path, LLAMA_13B, quantization_config=section))
    assert size.format == "awq"
    assert size.weight_bytes == pytest.approx(7.2e9, rel=0.03)  # codes, zeros and scales; plain numbers at both ends


def test_a_mixture_reads_the_experts_that_its_tokens_have(tmp_path: Path) -> None:
    size = read_model_size(write(tmp_path, MIXTRAL))
    assert size.num_parameters == pytest.approx(46.7e9, rel=0.01)
    assert size.active == pytest.approx(12.9e9, rel=0.02)
    assert size.step_bytes(1) == pytest.approx(2 * size.active, rel=0.02)
    assert size.step_bytes(100) == pytest.approx(size.weight_bytes, rel=0.02)


@pytest.mark.parametrize("name", sorted(FAMILY_MODELS))
def test_every_family_has_as_many_numbers_as_its_checkpoint(tmp_path: Path, name: str) -> None:
    folder = make_family(tmp_path / "model", name)
    read = {name_: entry for name_, entry in Checkpoint(folder).entries.items()
            if not name_.startswith(UNREAD.get(name, "nothing"))}
    size, by_format = read_model_size(folder), bytes_by_format(folder)
    assert by_format["float32"] == 2 * by_format["bfloat16"] > 2 * by_format["int4"]
    assert size.num_parameters == sum(entry.num_elements for entry in read.values())
    assert size.weight_bytes == 4 * size.num_parameters


def test_bytes_are_those_that_the_server_counts(tmp_path: Path) -> None:
    folder = make_family(tmp_path / "model", "llama")
    for quantize in (None, "int8", "int4"):
        format_of = read_model_config(folder, ModelOptions(quantize=quantize)).format_of
        counted = memory_of(Checkpoint(folder), format_of, torch.float32)
        assert read_model_size(folder, quantize=quantize).weight_bytes == counted


def test_an_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match="a plan is for models that continue texts"):
        read_model_size(make_encoder(tmp_path / "model", "bert"))
