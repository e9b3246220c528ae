"""The angles of all positions."""

import pytest
import torch

from penstock.shard.layers import rope
from penstock.shard.models.rotary_scaling import Rotation


def test_the_parts_that_angles_are_computed_in_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rotation = Rotation((1.0, 0.1, 0.01), amplitude=1.5, context_length=1000)
    whole = rope.Rotary(rotation)
    monkeypatch.setattr(rope, "POSITIONS", 300)
    parts = rope.Rotary(rotation)
    assert torch.equal(parts.cos, whole.cos)
    assert torch.equal(parts.sin, whole.sin)
    angles = torch.outer(torch.arange(1000, dtype=torch.float32), torch.tensor(rotation.frequencies)).double()
    assert torch.equal(whole.cos, (angles.cos() * 1.5).float())
    assert torch.equal(whole.sin, (angles.sin() * 1.5).float())
