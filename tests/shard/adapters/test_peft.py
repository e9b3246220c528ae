"""What PEFT itself saves and computes."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft  # type: ignore[import-untyped]
import pytest
import torch

from penstock.checkpoints.adapter_files import REFUSED
from penstock.kernels.lora import AdapterRows
from penstock.shard.adapters.config import READ, WITHOUT_EFFECT, AdapterConfig
from penstock.shard.adapters.store import AdapterStore
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from penstock.system.fields import FileError
from tests.adapter_files import LINEARS
from tests.tiny_models import make_tiny, prompt_logits

pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning"),  # of transformers, for PEFT's use of it
              pytest.mark.filterwarnings("ignore:.*save_embedding_layers"),
              pytest.mark.filterwarnings("ignore:.*tie"),
              pytest.mark.filterwarnings("ignore:.*tied")]
IDS = torch.arange(3, 40)
HEAD = ["q_proj", "lm_head"]
TRAINED_APART = {"lora_dropout": 0.5, "layers_to_transform": [1], "layers_pattern": "layers", "task_type": "CAUSAL_LM",
                 "exclude_modules": ["k_proj"], "revision": "main", "megatron_core": "other", "qalora_group_size": 8}


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    models: dict[bool, Path] = {}

    def make(tied: bool) -> Path:
        if tied not in models:
            models[tied] = make_tiny(tmp_path_factory.mktemp("model") / "tiny", tied=tied)
        return models[tied]
    return make


@pytest.mark.parametrize(("settings", "tied"), [
    ({"r": 8}, False), ({"r": 16, "use_rslora": True, "lora_alpha": 5}, False),
    ({"r": 1, "target_modules": HEAD}, False), ({"r": 1, "target_modules": HEAD}, True),
    ({"r": 4, "rank_pattern": {"layers.1.mlp.down_proj": 9, "k_proj": 3}, "alpha_pattern": {"layers.0.*q_proj": 7}},
     False),
    ({"r": 4, "alpha_pattern": {"^model.layers.0.self_attn.(q|k)_proj": 9, r"layers\.[1-9]+\.mlp\..*": 3}}, False),
    ({"r": 256, "init_lora_weights": "gaussian"}, False), ({"r": 4, "init_lora_weights": "mica"}, False),
    ({"r": 4, "velora_config": peft.VeloraConfig(num_groups=4)}, False), ({"r": 4, **TRAINED_APART}, False),
    ({"r": 4, "target_modules": ".*mlp.*(up|down)_proj$"}, False), ({"r": 4, "target_modules": "all-linear"}, True),
    ({"r": 4, "ensure_weight_tying": True}, True)], ids=str)
def test_logits(make: Callable[..., Path], tmp_path: Path, settings: dict[str, Any], tied: bool) -> None:
    """Of what PEFT saves by default."""
    from transformers import AutoModelForCausalLM

    model = make(tied)
    base: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    adapted = peft.get_peft_model(base, peft.LoraConfig(**{"target_modules": [*LINEARS], **settings})).eval()
    generator = torch.Generator().manual_seed(1)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) / 12
    with torch.no_grad():
        expected = adapted(IDS[None]).logits[0]
    adapted.save_pretrained(tmp_path / "adapter")
    decoder = Decoder.load(model, torch.float32, Group())
    store = AdapterStore(decoder.adaptable)
    store.load(1, tmp_path / "adapter").result()
    adapter = store.get(1)
    assert adapter is not None
    logits = prompt_logits(decoder, IDS, adapters=AdapterRows(torch.zeros(len(IDS), dtype=torch.int32), (adapter,)))
    assert logits is not None
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
    with adapted.disable_adapter(), torch.no_grad():
        assert (adapted(IDS[None]).logits[0] - expected).abs().max() > 0.01


def test_a_copy_of_the_base_in_less_precision(make: Callable[..., Path], tmp_path: Path) -> None:
    """As it is saved where the base was trained in bfloat16."""
    from transformers import AutoModelForCausalLM

    base: Any = AutoModelForCausalLM.from_pretrained(make(False), dtype=torch.bfloat16)
    peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=HEAD)).save_pretrained(tmp_path / "adapter")
    assert AdapterStore(Decoder.load(make(False), torch.float32, Group()).adaptable).load(
        1, tmp_path / "adapter").result() > 0


OTHERS: dict[str, Any] = {
    "use_dora": True, "modules_to_save": ["lm_head"], "lora_bias": True, "trainable_token_indices": [3],
    "layer_replication": [[0, 2]], "alora_invocation_tokens": [5], "target_parameters": ["mlp.down_proj.weight"],
    "use_qalora": True, "use_bdlora": {"nblocks": 2}, "arrow_config": {"top_k": 2}, "kasa_config": {"beta": 1e-4},
    "monteclora_config": {"num_samples": 4}}
"""A value of each key by which PEFT computes otherwise."""
WITH_EFFECT = {
    "peft_type": "IA3", "bias": "all", "init_lora_weights": "pissa", "r": 300, "lora_alpha": "x", "use_rslora": "x",
    "rank_pattern": {"(": 1}, "alpha_pattern": {"(": 1}}
"""A value of each key that is read, which is refused."""
NOT_SAVED = {"runtime_config"}


def test_every_key_of_peft_is_served_or_passed_or_refused_by_name(tmp_path: Path) -> None:
    """Its default is taken, and any other value is read, known to change nothing, or refused by the key's name."""
    fields = {field.name for field in dataclasses.fields(peft.LoraConfig)}
    assert {*OTHERS} == {*REFUSED}
    assert {*WITH_EFFECT} == READ
    assert fields - NOT_SAVED == (WITHOUT_EFFECT | READ | {*REFUSED}) - NOT_SAVED
    peft.LoraConfig(target_modules=["q_proj"]).save_pretrained(tmp_path)
    path = tmp_path / "adapter_config.json"
    saved = json.loads(path.read_text())
    assert saved.keys() == fields - NOT_SAVED
    AdapterConfig.read(tmp_path)
    for key, value in {**OTHERS, **WITH_EFFECT}.items():
        path.write_text(json.dumps({**saved, key: value}))
        with pytest.raises(FileError, match=f"adapter_config.json: {key}( is|, | has)"):
            AdapterConfig.read(tmp_path)
    for key in WITHOUT_EFFECT:
        path.write_text(json.dumps({**saved, key: {"any": "value"}}))
        AdapterConfig.read(tmp_path)


@pytest.mark.parametrize("initial", ["pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga", "a new one"])
def test_what_changes_the_base_at_first_is_refused(tmp_path: Path, initial: str) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "init_lora_weights": initial}))
    with pytest.raises(FileError, match=f"init_lora_weights is '{initial}': such an adapter belongs to other"):
        AdapterConfig.read(tmp_path)
