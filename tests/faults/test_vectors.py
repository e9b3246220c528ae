"""Shards are killed under clients that ask for vectors, and every answer is as before."""

from pathlib import Path

import pytest

from tests.e2e.server import serve
from tests.faults.vectors import NUM_SHARDS, disturb, make_asks
from tests.tiny_embedders import make_embedder


@pytest.mark.slow
async def test_no_vector_is_lost_or_changed_by_the_death_of_shards(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    model = make_embedder(tmp_path / "model")
    with serve(tmp_path, "--num-shard", str(NUM_SHARDS), model=model) as server:
        found = await disturb(server, make_asks(model, 32, seed=2), clients=8, kills=2, seconds=6, seed=2)
    assert found.answers > 8
