"""The benchmark of starts, on the demo model."""

import pytest

from penstock.bench.programs.root import DEMO_MODEL
from penstock.bench.server import start
from penstock.bench.server.start import measure

SMALL, LARGE = 16 << 20, 144 << 20


@pytest.mark.slow
def test_all_of_the_memory_of_keys_and_values_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "REST_SECONDS", 1.0)
    small, large = (measure(DEMO_MODEL, ("--kv-memory", str(size))) for size in (SMALL, LARGE))
    assert large.kv_tokens == LARGE // SMALL * small.kv_tokens
    assert large.num_bytes - small.num_bytes == pytest.approx(LARGE - SMALL, rel=0.3)
    assert 0.5 < small.seconds < 60
    assert "imports" in small.phases
