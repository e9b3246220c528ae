"""What a stage has of a model: its blocks, what it reads of a checkpoint, and what it says of the rest."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.model import load_model
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.names import USUAL_NAMES
from penstock.shard.models.stage import WHOLE, Stage
from penstock.shard.weights.checkpoint import Checkpoint
from tests.tiny_models import make_tiny

NORM, HEAD, EMBEDDING = "model.norm.weight", "lm_head.weight", "model.embed_tokens.weight"


@pytest.fixture(scope="module", params=[False, True], ids=["own head", "tied"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny", layers=5, tied=request.param)


def load(model: Path, stage: Stage) -> tuple[Decoder, set[str]]:
    names: list[str] = []
    decoder = Decoder.load(model, None, Group(), lambda name, *_: names.append(name), stage=stage)
    return decoder, set(names)


def test_blocks_are_dealt_out_evenly_and_in_order() -> None:
    for num_blocks in range(1, 12):
        for count in range(1, num_blocks + 1):
            parts = [Stage(number, count).blocks(num_blocks) for number in range(count)]
            assert [index for part in parts for index in part] == list(range(num_blocks))
            lengths = [len(part) for part in parts]
            assert max(lengths) - min(lengths) <= 1
            assert lengths == sorted(lengths, reverse=True)  # the last ones have the head besides


def test_more_stages_than_layers_are_refused(model: Path) -> None:
    message = "--pipeline-parallel-size 6: the model has 5 layers, and each stage needs one"
    with pytest.raises(ModelConfigError, match=message):
        load(model, Stage(0, 6))


def test_what_transformers_computes_is_refused(model: Path) -> None:
    config = ShardConfig(model=model, model_impl="transformers")
    message = f"{model}: --pipeline-parallel-size 2: the model is computed by transformers, which runs all of it on 1 "
    with pytest.raises(ModelConfigError, match=re.escape(message)):
        load_model(config, Group(), stage=Stage(1, 2))


@pytest.mark.parametrize(("settings", "message"), [
    ({"world_size": 4, "pipeline_parallel_size": 3}, "`pipeline_parallel_size` 3 does not divide the `world_size` of"),
    ({"world_size": 2, "pipeline_parallel_size": 2, "draft_model": Path("d")}, "`draft_model` d: a draft model runs")])
def test_settings_that_do_not_go_together(model: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShardConfig(model=model, listen="unix:/x", rendezvous="file:///y", **settings).check()


def test_a_stage_reads_its_own_tensors(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    entries = Checkpoint(model).entries
    is_tied = HEAD not in entries
    parts = [load(model, Stage(number, 3))[1] for number in range(3)]
    assert set.union(*parts) == set(entries)
    shared = {EMBEDDING} if is_tied else set()
    assert [parts[0] & parts[1], parts[1] & parts[2], parts[0] & parts[2]] == [set(), set(), shared]
    assert [[NORM in part, EMBEDDING in part] for part in parts] == [[False, True], [False, False], [True, is_tied]]
    assert caplog.messages == []         # of tensors that nobody uses
    sizes = [sum(torch.Size(entries[name].shape).numel() for name in part) for part in parts]
    whole = sum(torch.Size(entry.shape).numel() for entry in entries.values())
    assert max(sizes) < 0.5 * whole


def test_tensors_that_nobody_uses_are_told_once(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(model / "model.safetensors")
    save_file(tensors | {"model.layers.3.extra.weight": torch.ones(2)}, model / "model.safetensors")
    try:
        for number in range(2):
            load(model, Stage(number, 2))
    finally:
        save_file(tensors, model / "model.safetensors")
    assert [message for message in caplog.messages if "does not use" in message] == [
        "The checkpoint has 1 tensors that the model does not use: ['model.layers.3.extra.weight']"]


def test_what_is_elsewhere() -> None:
    assert WHOLE.elsewhere(USUAL_NAMES, 3) == ()
    assert Stage(0, 2).elsewhere(USUAL_NAMES, 3) == ("model.layers.2.", "model.norm.", "lm_head.")
    assert Stage(1, 2).elsewhere(USUAL_NAMES, 3) == ("model.layers.0.", "model.layers.1.", "model.embed_tokens.")


def test_a_stage_goes_on_where_the_one_before_ended(model: Path) -> None:
    ids, count = torch.arange(7, 27), 20
    metadata = AttentionMetadata(
        torch.arange(count), torch.arange(count), torch.tensor([[0, 1]], dtype=torch.int32),
        torch.tensor([0], dtype=torch.int32), torch.tensor([count], dtype=torch.int32), is_decode=False)

    def caches_of(decoder: Decoder) -> list[object]:
        from penstock.kernels.paged_attention import allocate_cache
        layout = decoder.facts.layout
        return [allocate_cache(2, block_size=16, num_kv_heads=layout.num_kv_heads, head_dim=layout.head_dim,
                               dtype=decoder.dtype, device="cpu") for _ in range(layout.num_caches)]

    whole, _ = load(model, WHOLE)
    expected = whole.logits(whole.forward(ids, metadata, caches_of(whole)), torch.arange(count))
    before = None
    for number in range(3):
        decoder, _ = load(model, Stage(number, 3))
        assert decoder.facts.layout.num_layers == (2, 2, 1)[number]
        hidden = decoder.forward(ids, metadata, caches_of(decoder), before)
        before = hidden.x, hidden.delta
    found = decoder.logits(hidden, torch.arange(count))
    assert expected is not None
    assert found is not None
    assert torch.equal(found, expected)
