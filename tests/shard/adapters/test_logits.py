"""An adapter's logits, next to those of transformers' model with the adapter merged into its weights, and of PEFT."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from penstock.kernels.lora import AdapterRows
from penstock.shard.adapters.store import AdapterStore
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from tests.adapter_files import LINEARS, make_adapter, merged_weights
from tests.family_models import make_family
from tests.tiny_models import make_tiny, prompt_logits

IDS = torch.arange(3, 40)
OLD = ("c_attn", "c_proj", "c_fc")
FAMILIES = {"phi3": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"), "gpt2": OLD, "gpt2, without base": OLD,
            "gpt_neox": ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "embed_out"),
            "gemma2": (*LINEARS, "lm_head"), "falcon, second": ("query_key_value", "dense", "dense_h_to_4h"),
            "qwen3_5": LINEARS}
QUICK = ("phi3", "gpt2", "qwen3_5")


def expected_logits(model: Path, adapter: Path) -> Tensor:
    from transformers import AutoModelForCausalLM

    made: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    modules = dict(made.named_modules())
    for name, delta in merged_weights(model, adapter).items():
        weight = modules[name].weight
        if name == "lm_head" and made.config.tie_word_embeddings:
            modules[name].weight = torch.nn.Parameter(weight.detach().clone())
            weight = modules[name].weight
        weight.data += delta if delta.shape == weight.shape and type(modules[name]).__name__ != "Conv1D" else delta.t()
    with torch.no_grad():
        logits: Tensor = made(IDS[None]).logits[0]
    return logits


def own_logits(model: Path, adapter: Path | None) -> Tensor:
    decoder = Decoder.load(model, torch.float32, Group())
    rows = None
    if adapter is not None:
        store = AdapterStore(decoder.adaptable)
        store.load(1, adapter).result()
        rows = AdapterRows(torch.zeros(len(IDS), dtype=torch.int32), (store.get(1),))
    logits = prompt_logits(decoder, IDS, adapters=rows)
    assert logits is not None
    return logits


def check(model: Path, adapter: Path) -> None:
    expected = expected_logits(model, adapter)
    torch.testing.assert_close(own_logits(model, adapter).double(), expected, rtol=0, atol=1e-4)
    assert (own_logits(model, None).double() - expected).abs().max() > 0.05


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny", has_bias=True)


@pytest.mark.parametrize("rank", [1, 8, 16, 64, 256])
def test_every_rank(model: Path, tmp_path: Path, rank: int) -> None:
    check(model, make_adapter(tmp_path / "adapter", model, rank, targets=(*LINEARS, "lm_head")))


@pytest.mark.parametrize("target", [*LINEARS, "lm_head"])
def test_every_linear(model: Path, tmp_path: Path, target: str) -> None:
    check(model, make_adapter(tmp_path / "adapter", model, targets=[target]))


def test_scales(model: Path, tmp_path: Path) -> None:
    check(model, make_adapter(tmp_path / "root", model, use_rslora=True))
    check(model, make_adapter(tmp_path / "patterns", model, rank_pattern={"q_proj": 3, "down_proj": 20},
                              alpha_pattern={"k_proj": 5, "down_proj": 1.5}))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_stored_dtypes(model: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    check(model, make_adapter(tmp_path / "adapter", model, dtype=dtype))


@pytest.mark.parametrize("family", [
    pytest.param(family, marks=() if family in QUICK else pytest.mark.slow) for family in FAMILIES])
def test_other_families(tmp_path: Path, family: str) -> None:
    """Linears that are stored as one, head by head, transposed, or with a gate; and what their modules are called."""
    model = make_family(tmp_path / "model", family)
    check(model, make_adapter(tmp_path / "adapter", model, targets=FAMILIES[family]))


def test_a_tied_head(tmp_path: Path) -> None:
    model = make_tiny(tmp_path / "model", tied=True)
    check(model, make_adapter(tmp_path / "adapter", model, targets=["lm_head", "q_proj"]))
