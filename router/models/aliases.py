"""Names that stand for models, or for versions of one, each of which gets a share of the requests."""

import hashlib
import math
import random
from collections.abc import Iterator, Mapping
from typing import Self

from penstock.system.arguments import InvalidArgument

Targets = Mapping[str, float]
"""The models that an alias stands for, each with its weight."""


class Aliases:
    """The aliases of a server, which may change while it runs. An alias stands for models, not for aliases. It may have
    shadows, each a model that is asked a share of the alias's requests, too."""

    def __init__(self, targets: Mapping[str, Targets], shadows: Mapping[str, Targets] | None = None) -> None:
        self._targets: dict[str, Targets] = dict(targets)
        self._shadows: dict[str, Targets] = dict(shadows or {})

    @classmethod
    def checked(
        cls, targets: Mapping[str, Targets], models: frozenset[str], shadows: Mapping[str, Targets] | None = None
    ) -> Self:
        """Makes them of what a user has written. Raises InvalidArgument."""
        for alias, weights in targets.items():
            if fault := fault_of(alias, weights, models, (shadows or {}).get(alias)):
                raise InvalidArgument(f"`aliases`: {alias}: {fault}")
        return cls(targets, shadows)

    def __iter__(self) -> Iterator[tuple[str, Targets]]:
        return iter(self._targets.items())

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    def resolve(self, name: str, client: str | None) -> str:
        """Returns the model that a name stands for. An alias of several gives all requests of a `client` to the same
        one as long as its weights stay, and those of nobody by chance."""
        weights = self._targets.get(name)
        if weights is None:
            return name
        place = (random.random() if client is None else _place(name, client)) * sum(weights.values())
        for model, weight in weights.items():
            if place < weight:
                return model
            place -= weight
        return [model for model, weight in weights.items() if weight > 0][-1]  # sums of floats are not exact

    @property
    def have_shadows(self) -> bool:
        """Whether any of them has shadows."""
        return bool(self._shadows)

    def shadows_of(self, name: str) -> Targets:
        """Returns the shadows of an alias, each with its share of the requests; a model has none."""
        return self._shadows.get(name, {})

    def point(self, alias: str, weights: Targets, shadows: Targets | None = None) -> None:
        """Lets an alias stand for these models from now on, with these shadows; for no models, it is removed."""
        self._targets.pop(alias, None)
        self._shadows.pop(alias, None)
        if weights:
            self._targets[alias] = dict(weights)
            if shadows:
                self._shadows[alias] = dict(shadows)

    def stand_for(self, model: str) -> bool:
        """Tells whether an alias stands for a model, or has it as a shadow."""
        return self.are_followed_by(model) or any(model in weights for weights in self._targets.values())

    def are_followed_by(self, model: str) -> bool:
        """Tells whether a model is an alias's shadow."""
        return any(model in shares for shares in self._shadows.values())

    def to_json(self) -> dict[str, dict[str, dict[str, float]]]:
        """Returns them as JSON has them."""
        return {"targets": {alias: dict(weights) for alias, weights in self._targets.items()},
                "shadows": {alias: dict(shares) for alias, shares in self._shadows.items()}}


def fault_of(alias: str, weights: Targets, models: frozenset[str], shadows: Targets | None = None) -> str | None:
    """Returns the fault of an alias for these models of a server, as the end of a sentence; None if it has none."""
    shares = shadows or {}
    if not alias or alias != alias.strip() or not alias.isprintable():
        return "an alias must be a name without blanks around it"
    if alias in models:
        return "there is a model of this name"
    if unknown := [model for model in (*weights, *shares) if model not in models]:
        return f"there is no model {unknown[0]}; there are {', '.join(sorted(models))}"
    if not all(0 <= weight < math.inf for weight in weights.values()) or (weights and not sum(weights.values())):
        return f"weights must be finite and at least 0, and one of them more. Given: {dict(weights)}"
    if shares and not weights:
        return "shadows are for an alias that stands for a model"
    if not all(0 < share <= 1 for share in shares.values()):
        return f"a shadow's share must be more than 0 and at most 1. Given: {dict(shares)}"
    return None


def _place(name: str, client: str) -> float:
    """Returns a number from 0 to below 1 that follows from both names."""
    return int.from_bytes(hashlib.sha256(f"{name}\0{client}".encode()).digest()[:8]) / 2**64
