import sys
from collections.abc import Iterator
from types import ModuleType
from unittest.mock import MagicMock

import pytest

from penstock import cluster

ERRORS = ("ActorDiedError", "RayActorError", "RayTaskError")
PLACEMENT = ("PlacementGroup", "get_placement_group", "placement_group", "placement_group_table",
             "remove_placement_group")
IMPORTERS = ("keeper", "places", "hosts")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[MagicMock]:
    """Takes the place of Ray, for modules that import it anew."""
    ray = MagicMock()
    monkeypatch.setitem(sys.modules, "ray", ray)
    for name, words in {"exceptions": ERRORS, "util": (), "util.placement_group": PLACEMENT,
                        "util.scheduling_strategies": ("PlacementGroupSchedulingStrategy",)}.items():
        module = ModuleType(f"ray.{name}")
        module.__dict__.update(dict.fromkeys(words, RuntimeError if words is ERRORS else object))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    _forget()
    yield ray
    _forget()


def _forget() -> None:
    """Has the next test import anew what imports Ray."""
    for name in IMPORTERS:
        sys.modules.pop(f"penstock.cluster.{name}", None)
        vars(cluster).pop(name, None)
