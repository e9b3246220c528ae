"""An encoder whose blocks are one call has the bits of one whose blocks are computed op by op."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.kernels import fused
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.layers import encoder
from penstock.shard.layers.encoder import Encoder
from tests.encoder_models import ENCODER_MODELS, VOCAB, make_encoder
from tests.shard.ranks import make_config
from tests.shard.whole_texts import Text, run_whole, texts

pytestmark = pytest.mark.skipif(not fused.is_available(), reason="there are no compiled kernels")
WITHOUT = {"eurobert", "deberta", "deberta, every distance"}
"""The families whose norms are not layer norms, or whose scores have terms of their own."""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ENCODER_MODELS)
def test_bits_are_those_of_the_ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, dtype: str) -> None:
    config, given = make_config(make_encoder(tmp_path / "model", name), dtype), texts([9, 30, 1], VOCAB)
    found = _of_one_call(monkeypatch, config, given, is_fused=name not in WITHOUT)
    assert run_whole(Executor(config, Group()), [given]) == found


def test_weights_of_8_bits_have_the_bits_of_the_ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(make_config(make_encoder(tmp_path / "model", "bert")), quantize="int8")
    given = texts([9, 30, 1], VOCAB)
    found = _of_one_call(monkeypatch, config, given, is_fused=True)
    assert run_whole(Executor(config, Group()), [given]) == found


def _of_one_call(
    monkeypatch: pytest.MonkeyPatch, config: ShardConfig, given: Sequence[Text], is_fused: bool
) -> list[bytes]:
    """Returns the hidden states of the texts; executors that are made later compute op by op."""
    executor = Executor(config, Group())
    model = executor.loaded.model
    assert isinstance(model, Encoder)
    assert (model._fused is not None) == is_fused
    found = run_whole(executor, [given])
    monkeypatch.setattr(encoder, "fuse_encoder", lambda blocks: None)
    return found
