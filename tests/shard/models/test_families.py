"""A family is a row of a table: what its checkpoints call the tensors, and what its blocks are made of."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock.shard.communication.distributed import Group
from penstock.shard.layers.attention import Attention
from penstock.shard.layers.mlp import Mlp
from penstock.shard.models.decoder import Decoder
from penstock.shard.models.families import FAMILIES, Family
from penstock.shard.models.names import BlockNames, TensorNames
from tests.tiny_models import make_tiny, prompt_logits, random_ids

NAMES = TensorNames(
    embedding="wte", norm="ln_f", head="output", blocks="h.{index}", block=BlockNames(
        attention_norm="ln_1", q="q", k="k", v="v", attention_output="o", feed_forward_norm="ln_2", gate="w1", up="w3",
        down="w2"))


class UnusualAttention(Attention):
    """A class of a family's own."""


class UnusualMlp(Mlp):
    """Another one."""


def rename(source: Path, target: Path, num_blocks: int) -> Path:
    """Writes the checkpoint in `source` with the names of NAMES, as an architecture that is called Unusual."""
    usual = TensorNames()
    names = {getattr(usual, part): getattr(NAMES, part) for part in ("embedding", "norm", "head")}
    for index in range(num_blocks):
        old, new = usual.of_block(index), NAMES.of_block(index)
        names |= {getattr(old, part): getattr(new, part) for part in BlockNames.__dataclass_fields__}
    target.mkdir()
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"architectures": ["Unusual"]}))
    tensors = load_file(source / "model.safetensors")
    save_file({f"{names[name.removesuffix('.weight')]}.weight": tensor for name, tensor in tensors.items()},
              target / "model.safetensors")
    return target


def test_a_family_names_its_tensors_and_chooses_its_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(FAMILIES, "Unusual", Family(
        names=NAMES, attention=lambda config, index: UnusualAttention if index == 2 else Attention,
        feed_forward=lambda config, index: UnusualMlp if index == 1 else Mlp))
    usual = make_tiny(tmp_path / "usual", layers=3)
    decoders = [Decoder.load(path, None, Group()) for path in (usual, rename(usual, tmp_path / "unusual", 3))]
    logits, expected = (prompt_logits(decoder, random_ids(20, 160)) for decoder in decoders)
    assert logits is not None
    assert expected is not None
    assert torch.equal(logits, expected)
    assert [type(block.attention) is UnusualAttention for block in decoders[1]._blocks] == [False, False, True]
    assert [type(block.feed_forward) is UnusualMlp for block in decoders[1]._blocks] == [False, True, False]
    assert caplog.messages == []


def test_a_family_adds_names_of_layers_that_others_lack() -> None:
    @dataclass(frozen=True, slots=True)
    class WithRouter(BlockNames):
        router: str = "mlp.router"

    names = TensorNames(block=WithRouter()).of_block(3)
    assert isinstance(names, WithRouter)
    assert (names.router, names.q) == ("model.layers.3.mlp.router", "model.layers.3.self_attn.q_proj")
