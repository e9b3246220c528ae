"""What config.json leaves to the weights."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock.shard.models.reading import read_model_config
from tests.tiny_models import make_tiny


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_dtype_is_that_of_the_weights_where_nothing_says_it(tmp_path: Path, dtype: torch.dtype) -> None:
    model = make_tiny(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    del config["dtype"]
    (model / "config.json").write_text(json.dumps(config))
    tensors = load_file(model / "model.safetensors")
    save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, model / "model.safetensors")
    assert read_model_config(model).dtype == dtype
    (model / "model.safetensors").unlink()
    assert read_model_config(model).dtype == torch.float32
