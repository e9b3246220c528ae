"""What PEFT itself saves and computes."""

from pathlib import Path
from typing import Any

import peft  # type: ignore[import-untyped]
import pytest
import torch

from penstock.kernels.lora import AdapterRows
from penstock.shard.adapters.store import AdapterStore
from penstock.shard.communication.distributed import Group
from penstock.shard.models.decoder import Decoder
from tests.adapter_files import LINEARS
from tests.tiny_models import make_tiny, prompt_logits

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, for PEFT's use of it
IDS = torch.arange(3, 40)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.mark.parametrize("settings", [
    {"r": 8}, {"r": 16, "use_rslora": True, "lora_alpha": 5}, {"r": 1, "target_modules": ["q_proj", "lm_head"]},
    {"r": 4, "rank_pattern": {"layers.1.mlp.down_proj": 9, "k_proj": 3}, "alpha_pattern": {"layers.0.*q_proj": 7}},
    {"r": 256, "init_lora_weights": "gaussian"}], ids=str)
def test_logits(model: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    from transformers import AutoModelForCausalLM

    made: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    adapted = peft.get_peft_model(made, peft.LoraConfig(**{"target_modules": [*LINEARS], **settings}))
    generator = torch.Generator().manual_seed(1)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) / 12
    with torch.no_grad():
        expected = adapted(IDS[None]).logits[0]
    adapted.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    decoder = Decoder.load(model, torch.float32, Group())
    store = AdapterStore(decoder.adaptable)
    store.load(1, tmp_path / "adapter").result()
    adapter = store.get(1)
    assert adapter is not None
    logits = prompt_logits(decoder, IDS, adapters=AdapterRows(torch.zeros(len(IDS), dtype=torch.int32), (adapter,)))
    assert logits is not None
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
    with adapted.disable_adapter(), torch.no_grad():
        assert (adapted(IDS[None]).logits[0] - expected).abs().max() > 0.05
