"""Adapters that can't be loaded, and the sentences that say so."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from penstock.shard.adapters.load import load_adapter
from penstock.shard.adapters.store import AdapterStore
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from penstock.shard.weights.sites import Adaptable
from penstock.system.fields import FileError
from tests.adapter_files import make_adapter
from tests.family_models import make_family
from tests.router.adapters.folders import digest_of
from tests.tiny_models import make_tiny

Q = "base_model.model.model.layers.0.self_attn.q_proj"
K = "base_model.model.model.layers.0.self_attn.k_proj"


def adaptable_of(model: Path, dtype: torch.dtype = torch.float32) -> Adaptable:
    found = Decoder.load(model, dtype, Group()).adaptable
    assert found is not None
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def adaptable(model: Path) -> Adaptable:
    return adaptable_of(model)


@pytest.fixture
def adapter(model: Path, tmp_path: Path) -> Path:
    return make_adapter(tmp_path / "adapter", model, 4, targets=["q_proj"])


def change_config(adapter: Path, **changes: Any) -> None:
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(("changes", "message"), [
    ({"peft_type": "IA3"}, "peft_type is 'IA3', only LORA is served"),
    ({"use_dora": True}, "use_dora is True: the magnitudes of DoRA are not served"),
    ({"modules_to_save": ["lm_head"]}, r"modules_to_save is \['lm_head'\]: modules that were trained whole"),
    ({"bias": "all"}, "bias is 'all', only none is served"),
    ({"lora_bias": True}, "lora_bias is True: biases of adapters are not served"),
    ({"trainable_token_indices": [1]}, r"trainable_token_indices is \[1\]: tokens that were trained"),
    ({"layer_replication": [[0, 1]]}, "layer_replication is .*: layers that are run several times"),
    ({"alora_invocation_tokens": [5]}, "alora_invocation_tokens is .*aLoRA"),
    ({"target_parameters": ["mlp.experts.down_proj"]}, "target_parameters is .*bare parameters"),
    ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa': such an adapter belongs to other weights"),
    ({"use_bdlora": {"nblocks": 2}}, "use_bdlora is .*: the blocks of BD-LoRA are not served"),
    ({"peft_type": "x" * 100_000}, "peft_type is 'x{79}, only LORA"),
    ({"r": 257}, "r is 257, it must be a whole number from 1 to 256"),
    ({"r": "8"}, "r is '8', it must be a whole number"),
    ({"rank_pattern": {"q_proj": 0}}, "rank_pattern, q_proj is 0, it must be"),
    ({"rank_pattern": {r"(a)\1": 4}}, r"rank_pattern has the name .*, a pattern that .*: it has \\1, which"),
    ({"alpha_pattern": {"q_proj[": 4}}, r"alpha_pattern has the name 'q_proj\[', .*: it has a \[ without"),
    ({"alpha_pattern": {"q" * 70_000: 4}}, r"alpha_pattern has the name .*: it has \d+ characters, at most 65536"),
    ({"rank_pattern": {f"q{number}": 4 for number in range(9000)}}, "rank_pattern is too much: there are 9000"),
    ({"alpha_pattern": 3}, "alpha_pattern is no object"),
    ({"lora_alpha": None}, "lora_alpha is None, it must be a number"),
    ({"r": 8}, r"q_proj.lora_A.weight has shape \[4, 64\], expected \[8, 64\]"),
])
def test_configurations(adaptable: Adaptable, adapter: Path, changes: dict[str, Any], message: str) -> None:
    change_config(adapter, **changes)
    with pytest.raises(FileError, match=f"^{adapter}/.*{message}"):
        load_adapter(adapter, "", adaptable)


def test_keys_of_other_libraries_are_passed(
    adaptable: Adaptable, adapter: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change_config(adapter, unsloth_version="2026.11.1", a_new_key=3, corda_config={"cache_file": None}, unset=None)
    load_adapter(adapter, "", adaptable)
    assert caplog.messages == [f"{adapter}/adapter_config.json: keys that PEFT's LoRA does not have are ignored: "
                               "a_new_key, unsloth_version"]


NAN, INFINITE = torch.full((4, 64), torch.nan), torch.full((4, 64), 1e39, dtype=torch.float64)


@pytest.mark.parametrize(("changes", "message"), [
    ({f"{Q}.lora_B.weight": None}, f"has {Q}.lora_A.weight, but no lora_B of model.layers.0.self_attn.q_proj"),
    ({f"{Q}.lora_A.weight": None}, f"has {Q}.lora_B.weight, but no lora_A of"),
    ({f"{Q}.lora_A.default.weight": torch.ones(4, 64)}, "has two tensors .* for one matrix"),
    ({f"{Q}.lora_A.weight": torch.ones(4, 63)}, r"lora_A.weight has shape \[4, 63\], expected \[4, 64\]"),
    ({f"{Q}.lora_B.weight": torch.ones(99, 4)}, r"lora_B.weight has shape \[99, 4\], expected \[128, 4\]"),
    ({f"{Q}.lora_B.weight": torch.ones(128, 5)}, r"lora_A.weight has shape \[4, 64\] and .*, whose ranks differ"),
    ({f"{Q}.lora_A.weight": torch.ones(4, 64, 1)}, r"has shape \[4, 64, 1\], expected two axes"),
    ({f"{Q}.lora_A.weight": torch.ones(4, 64).int()}, "lora_A.weight is I32, expected one of F64"),
    ({f"{Q}.lora_A.weight": NAN}, "lora_A.weight has a number that is infinite or not a number"),
    ({f"{Q}.lora_A.weight": INFINITE}, "lora_A.weight has a number that is"),
    ({f"{Q}.lora_magnitude_vector.weight": torch.ones(4)}, "lora_magnitude_vector.weight: the magnitudes of DoRA"),
    ({"base_model.model.lm_head.modules_to_save.weight": torch.ones(4)}, "modules that were trained whole"),
    ({"base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(4)}, "adapters of embeddings are not served"),
    ({"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta": torch.ones(4)},
     "tokens that were trained are not served"),
    ({f"{Q}.lora_B.bias": torch.ones(4)}, "biases of adapters are not served"),
    ({f"{Q}.lora_C.weight": torch.ones(4)}, "q_proj.lora_C.weight: it is neither A nor B of a LoRA"),
    ({"base_model.model.lm_head.base_layer.weight": torch.ones(160, 64)},
     "lm_head.base_layer.weight is another weight than the base's, which was trained"),
    ({"base_model.model.lm_head.base_layer.weight": torch.ones(163, 64)},
     r"it has shape \[163, 64\], and the base's \[160, 64\]: a vocabulary that was enlarged"),
    ({"base_model.model.other.weight": torch.ones(4)}, "other.weight: it is neither A nor B of a LoRA, nor a weight"),
    ({f"{Q}_2.lora_A.weight": torch.ones(4, 64), f"{Q}_2.lora_B.weight": torch.ones(64, 4)},
     "q_proj_2.lora_A.weight: the model has no linear of this name"),
])
def test_tensors(
    model: Path, adaptable: Adaptable, tmp_path: Path, changes: dict[str, Tensor | None], message: str
) -> None:
    adapter = make_adapter(tmp_path / "adapter", model, 4, targets=["q_proj"], changes=changes)
    with pytest.raises(FileError, match=f"^{adapter}/adapter_model.safetensors.*{message}"):
        load_adapter(adapter, "", adaptable)


def test_numbers_that_the_models_dtype_lacks(model: Path, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "adapter", model, 4, targets=["q_proj"], changes={
        f"{Q}.lora_A.weight": torch.full((4, 64), 1e6)})
    with pytest.raises(FileError, match="has a number that is too large for the model's float16"):
        load_adapter(adapter, "", adaptable_of(model, torch.float16))


def test_files(adaptable: Adaptable, adapter: Path, tmp_path: Path) -> None:
    tensors = adapter / "adapter_model.safetensors"
    load_adapter(adapter, digest := digest_of(adapter), adaptable)
    with pytest.raises(FileError, match=f"files have the SHA-256 {digest}, expected {'0' * 64}: they have changed"):
        load_adapter(adapter, "0" * 64, adaptable)
    whole = tensors.read_bytes()
    for length in (0, 5, 100, len(whole) - 1):
        tensors.write_bytes(whole[:length])
        with pytest.raises(FileError, match=r"adapter_model.safetensors"):
            load_adapter(adapter, "", adaptable)
    tensors.rename(adapter / "adapter_model.bin")
    with pytest.raises(FileError, match=r"there is no such file; PEFT's save_pretrained makes it of adapter_model.bin"):
        load_adapter(adapter, "", adaptable)
    (adapter / "adapter_config.json").write_text("{")
    with pytest.raises(FileError, match=r"adapter_config.json: it is not JSON"):
        load_adapter(adapter, "", adaptable)
    shutil.rmtree(adapter)
    with pytest.raises(FileError, match=r"adapter: it must be a directory on the server"):
        load_adapter(adapter, "", adaptable)


@pytest.mark.parametrize(("family", "target", "reason"), [
    ("mixtral", "gate", "adapters of mixtures of experts are not served"),
    ("deepseek_v3, halves", "kv_a_proj_with_mqa", "adapters of latent attention are not served"),
    ("qwen3_5", "in_proj_qkv", "adapters of recurrent layers are not served"),
])
def test_layers_that_take_none(tmp_path: Path, family: str, target: str, reason: str) -> None:
    """The names of the modules are made up: transformers has some of them as one parameter."""
    model = make_family(tmp_path / "model", family)
    found = adaptable_of(model)
    name = next(name for name, why in found.refused.items() if why == reason)
    module = f"base_model.model.{name}.{target}"
    adapter = make_adapter(tmp_path / "adapter", model, 4, targets=[], changes={
        f"{module}.lora_A.weight": torch.ones(4, 64), f"{module}.lora_B.weight": torch.ones(64, 4)})
    with pytest.raises(FileError, match=rf"has the tensor {module}.lora_A.weight: {reason}"):
        load_adapter(adapter, "", found)


def test_a_new_stream_keeps_what_was_loaded_for_it(adaptable: Adaptable, adapter: Path) -> None:
    store = AdapterStore(adaptable)
    for number, epoch in ((1, 6), (2, 7), (3, 6)):
        store.load(number, adapter, epoch=epoch)
    store.load(4, adapter).result()
    store.begin(7)
    assert [store.get(number) is not None for number in (1, 2, 3, 4)] == [False, True, False, True]
    store.unload(2, 6)
    assert store.get(2) is not None, "what was loaded for another stream stays"
    store.unload(2, 7)
    assert store.get(2) is None


def test_what_is_unloaded_while_it_loads_is_not_kept(adaptable: Adaptable, adapter: Path) -> None:
    store = AdapterStore(adaptable)
    first = store.load(1, adapter, epoch=6)
    second = store.load(2, adapter, epoch=6)
    store.unload(2, 6)
    first.result()
    with pytest.raises(FileError, match="was unloaded while it was loaded"):
        second.result()
    assert store.get(2) is None


@pytest.mark.parametrize("config", [
    {"lora_alpha": 1e300}, {"lora_alpha": 10**400}, {"alpha_pattern": {"q_proj": 10**400}}, {"use_rslora": "no"},
    {"bias": "x" * 50_000}])
def test_odd_numbers_are_a_fault_of_the_adapter(adaptable: Adaptable, adapter: Path, config: dict[str, object]) -> None:
    change_config(adapter, **config)
    with pytest.raises(FileError) as error:
        AdapterStore(adaptable).load(1, adapter).result()
    assert len(str(error.value)) < 1000


def test_two_pairs_for_one_linear(tmp_path: Path, model: Path, adaptable: Adaptable, adapter: Path) -> None:
    name = next(part for part, _ in adaptable.sites[0].parts)
    rank, outputs, inputs = 4, adaptable.sites[0].parts[0][1].out_features, adaptable.sites[0].in_features
    short = name.removeprefix("model.")
    twice = make_adapter(tmp_path / "twice", model, rank, targets=["q_proj"], changes={
        f"base_model.model.{short}.lora_A.weight": torch.ones(rank, inputs),
        f"base_model.model.{short}.lora_B.weight": torch.ones(outputs, rank)})
    with pytest.raises(FileError, match="has two pairs of matrices for"):
        load_adapter(twice, "", adaptable)


def test_a_configuration_that_has_changed(adaptable: Adaptable, adapter: Path) -> None:
    load_adapter(adapter, digest := digest_of(adapter), adaptable)
    change_config(adapter, lora_alpha=3)
    with pytest.raises(FileError, match="they have changed"):
        load_adapter(adapter, digest, adaptable)


def test_a_refused_adapter_leaves_nothing(adaptable: Adaptable, adapter: Path) -> None:
    store = AdapterStore(adaptable)
    for number, message in ((0, "adapter 0 stands for none"), (1, "r is 300")):
        change_config(adapter, r=300)
        with pytest.raises(FileError, match=message):
            store.load(number, adapter).result()
        assert store.get(number) is None
    change_config(adapter, r=4)
    assert store.load(1, adapter).result() > 0
    assert store.get(1) is not None
    store.unload(1)
    store.unload(1)
    assert store.get(1) is None
    with pytest.raises(FileError, match="the model is computed by transformers, which takes no adapters here"):
        AdapterStore(None).load(1, adapter).result()
