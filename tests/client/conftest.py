"""The router's real app over a scripted fleet, as in tests/router/api."""

import pytest

from penstock.client import patience
from tests.router.api.conftest import demo, grammars, hermes, start

__all__ = ["demo", "grammars", "hermes", "start"]


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of clients between two attempts."""
    monkeypatch.setattr(patience, "FIRST_SECONDS", 0.005)
    monkeypatch.setattr(patience, "LAST_SECONDS", 0.2)
