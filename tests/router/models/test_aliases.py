"""An alias gives each client one model, and each model its share."""

from collections import Counter

import pytest
from hypothesis import given, strategies

from penstock.router.models.aliases import Aliases
from penstock.system.arguments import InvalidArgument

WEIGHTS = {"chat@3": 0.9, "chat@4": 0.1}


def test_a_name_that_is_no_alias_stands_for_itself() -> None:
    assert Aliases({"chat": WEIGHTS}).resolve("other", "client") == "other"


def test_a_client_keeps_its_model_and_models_get_their_shares() -> None:
    aliases = Aliases({"chat": WEIGHTS})
    found = {f"client {number}": aliases.resolve("chat", f"client {number}") for number in range(2000)}
    assert all(aliases.resolve("chat", client) == model for client, model in found.items())
    assert 0.85 < Counter(found.values())["chat@3"] / 2000 < 0.95


def test_requests_of_nobody_are_shared_by_chance() -> None:
    found = Counter(Aliases({"chat": WEIGHTS}).resolve("chat", None) for _ in range(2000))
    assert 0.85 < found["chat@3"] / 2000 < 0.95


def test_a_larger_share_takes_no_client_away_from_its_model() -> None:
    before, after = Aliases({"chat": {"a": 0.1, "b": 0.9}}), Aliases({"chat": {"a": 0.3, "b": 0.7}})
    clients = [str(number) for number in range(500)]
    assert all(after.resolve("chat", each) == "a" for each in clients if before.resolve("chat", each) == "a")


@given(strategies.dictionaries(strategies.sampled_from("abcd"), strategies.floats(0, 1e6), min_size=1),
       strategies.none() | strategies.text())
def test_whatever_the_weights_one_with_a_weight_is_chosen(weights: dict[str, float], client: str | None) -> None:
    if sum(weights.values()) > 0:
        assert weights[Aliases({"x": weights}).resolve("x", client)] > 0


def test_an_alias_is_pointed_elsewhere_and_removed() -> None:
    aliases = Aliases({"chat": {"chat@3": 1.0}})
    aliases.point("chat", {"chat@4": 1.0})
    assert (aliases.resolve("chat", None), aliases.stand_for("chat@3"), aliases.stand_for("chat@4")) == (
        "chat@4", False, True)
    aliases.point("chat", {})
    assert "chat" not in aliases
    assert aliases.to_json() == {"targets": {}, "shadows": {}}


def test_an_alias_keeps_its_shadows_until_it_is_pointed_anew() -> None:
    aliases = Aliases({"chat": {"a": 1.0}, "other": {"a": 1.0}}, {"chat": {"b": 0.1}})
    assert (aliases.shadows_of("chat"), aliases.shadows_of("other"), aliases.shadows_of("a")) == ({"b": 0.1}, {}, {})
    assert Aliases(**aliases.to_json()).to_json() == aliases.to_json()
    assert (aliases.stand_for("b"), aliases.are_followed_by("b"), aliases.are_followed_by("a")) == (True, True, False)
    aliases.point("chat", {"a": 1.0})
    assert (aliases.have_shadows, aliases.stand_for("b")) == (False, False)


@pytest.mark.parametrize(("weights", "shadows", "said"), [
    ({"a": 1.0}, {"c": 0.5}, "there is no model c; there are a, b"),
    ({"a": 1.0}, {"b": 0.0}, "a shadow's share must be more than 0 and at most 1"),
    ({"a": 1.0}, {"b": 1.1}, "a shadow's share must be"),
    ({"a": 1.0}, {"b": float("nan")}, "a shadow's share must be"),
    ({}, {"b": 0.5}, "shadows are for an alias that stands for a model"),
])
def test_shadows_that_can_not_be_are_refused(weights: dict[str, float], shadows: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        Aliases.checked({"x": weights}, frozenset("ab"), {"x": shadows})


@pytest.mark.parametrize(("alias", "weights", "said"), [
    ("a", {"b": 1.0}, "there is a model of this name"),
    ("x", {"c": 1.0}, "there is no model c; there are a, b"),
    ("x", {"a": -1.0, "b": 2.0}, "weights must be finite and at least 0"),
    ("x", {"a": 0.0}, "one of them more"),
    ("x", {"a": float("inf")}, "weights must be finite"),
    ("x", {"a": float("nan")}, "weights must be finite"),
    (" x", {"a": 1.0}, "an alias must be a name"),
])
def test_an_alias_that_can_not_be_is_refused(alias: str, weights: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        Aliases.checked({alias: weights}, frozenset("ab"))
