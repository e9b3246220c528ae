"""What is written of a linear is what the server reads of it, bit for bit."""

import json
from pathlib import Path

import pytest
import torch

from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.quantization.grid import encode, fit
from penstock.quantization.methods.squeezellm import _round
from penstock.quantization.run import WRITERS
from penstock.quantization.settings import make_settings
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.coded import CodedFormat
from penstock.shard.weights.format import LinearPart
from tests.shard.models.test_quantization import BASE

LINEAR = "model.layers.0.mlp.down_proj"
OUTPUTS, INPUTS = 48, 128


def read_back(folder: Path, config: dict, tensors: dict[str, torch.Tensor]) -> CodedWeight:
    (folder / "config.json").write_text(json.dumps(BASE | {"quantization_config": config}))
    format_ = read_model_config(folder).format_of(LINEAR)
    assert isinstance(format_, CodedFormat)
    part = LinearPart(OUTPUTS, INPUTS, slice(0, OUTPUTS), slice(0, INPUTS))
    return format_.decode([tensors.get(each.name, torch.empty(0)) for each in format_.tensors(LINEAR, part)], part)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("method", "bits", "granularity", "symmetric"), [
    ("rtn", 4, "group", True), ("rtn", 4, "group", False), ("rtn", 4, "channel", True), ("rtn", 8, "channel", True),
    ("rtn", 8, "group", False), ("rtn", 8, "tensor", True), ("squeezellm", 4, "group", True)])
def test_what_is_written_is_read(
    method: str, bits: int, granularity: str, symmetric: bool, dtype: torch.dtype, tmp_path: Path
) -> None:
    settings = make_settings(method, bits, 32 if granularity == "group" else None, granularity,  # type: ignore[arg-type]
                             symmetric, None, None, None, dtype)
    weight = torch.randn(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(5))
    grid = settings.grid
    coded = _round(weight, torch.ones(INPUTS), grid) if method == "squeezellm" else encode(
        weight, *fit(weight, grid), grid)
    writer = WRITERS[settings.format]
    found = read_back(tmp_path, writer.config(settings), writer.tensors(LINEAR, coded, settings))
    assert torch.equal(found.dequantise(), coded.dequantise())
