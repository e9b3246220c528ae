"""The router's real app over a scripted fleet, as in tests/router/api."""

from tests.router.api.conftest import demo, grammars, hermes, start

__all__ = ["demo", "grammars", "hermes", "start"]
