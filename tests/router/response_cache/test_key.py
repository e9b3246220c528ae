"""The key of an answer: another field of the request, another key."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.contract.pooling import Pooling, Task
from penstock.contract.sampling import Sampling
from penstock.contract.side_inputs import SideInput
from penstock.router.adapters.registry import Adapter
from penstock.router.engine.request import Request
from penstock.router.engine.trace import Trace
from penstock.router.response_cache.key import IGNORED, key_of
from penstock.router.scheduling.beam_search import BeamSettings
from penstock.router.scheduling.promise import Deadline
from penstock.router.scheduling.tenant import Tenant

REQUEST = Request((1, 2, 3), Sampling(), 8)
OTHERS: dict[str, Any] = {
    "input_ids": (1, 2), "sampling": Sampling(seed=5), "max_new_tokens": 9, "stop": ("a",), "keep_stop": False,
    "tells_special": False, "ignore_eos": True, "stop_token_ids": frozenset({7}),
    "adapter": Adapter(1, "a", Path("/a"), "digest", 5), "beams": BeamSettings(2), "wants_prompt_logprobs": True,
    "bits": ("other",), "pooling": Pooling(Task.EMBED), "side_inputs": (SideInput("image", b"1", b"digest"),),
    "shown_ids": frozenset({3}), "salt": "salt"}
WITHOUT_EFFECT: dict[str, Any] = {
    "grammar": object(), "needs_bits": True, "priority": 5, "deadline": Deadline(1.0, 500), "trace": Trace(b"x" * 24),
    "tenant": Tenant("a", 1)}


def test_every_field_is_tried() -> None:
    assert OTHERS.keys() | WITHOUT_EFFECT.keys() == {each.name for each in fields(Request)}
    assert WITHOUT_EFFECT.keys() == IGNORED


@pytest.mark.parametrize("name", OTHERS)
def test_another_field_makes_another_key(name: str) -> None:
    assert key_of(replace(REQUEST, **{name: OTHERS[name]})) != key_of(REQUEST)


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_fields_that_change_no_answer_are_no_part_of_the_key(name: str) -> None:
    assert key_of(replace(REQUEST, **{name: WITHOUT_EFFECT[name]})) == key_of(REQUEST)


def test_an_adapter_is_known_by_its_files() -> None:
    adapter: Adapter = OTHERS["adapter"]
    one, same, other = (key_of(replace(REQUEST, adapter=each)) for each in (
        adapter, replace(adapter, number=9, path=Path("/b")), replace(adapter, digest="another")))
    assert one == same != other


def test_context_is_part_of_the_key() -> None:
    keys = [key_of(REQUEST, *context) for context in ((), (b"",), (b"a", b"b"), (b"ab", b""), (b"", b"ab"))]
    assert len({*keys}) == len(keys)


def test_sets_have_no_order() -> None:
    one, two = (replace(REQUEST, stop_token_ids=frozenset(ids)) for ids in ([1, 2**33, 8], [8, 2**33, 1]))
    assert key_of(one) == key_of(two)
