"""Recordings of answers: their bytes have all of them."""

import math
from typing import Any

import pytest

from penstock.router.response_cache.recording import Recording, Unreadable
from penstock.router.scheduling.beam_search import FoundAnswer
from penstock.router.scheduling.confirmed import Other, Pooled, PromptLogprobsPart, Sampled
from penstock.router.scheduling.finish_reason import FinishReason

RECORDINGS = {
    "nothing": Recording(),
    "tokens": Recording(hit_tokens=16, drafted=4, accepted=3, tokens=[
        Sampled(0, 7, -0.1), Sampled(0, 2**40, -1e-30, FinishReason.EOS_TOKEN)]),
    "a stop string": Recording(tokens=[Sampled(0, 7, -math.inf, None, ((7, -0.5), (3, -math.inf)))]),
    "prompt": Recording(prompt=[
        PromptLogprobsPart(0, 1, (-0.25, -3.0), (((1, -0.5),), ((2, -0.25), (4, -1.5))), (1, 900)),
        PromptLogprobsPart(0, 3, (-1.0,), (), (2,))], tokens=[Sampled(0, 1, 0.0, FinishReason.LENGTH)]),
    "others": Recording(others=[Other(0, 5, "made up", b"\0\xff"), Other(0, 6, "made up", b"")]),
    "beams": Recording(found=[FoundAnswer((1, 2), (-0.5, -0.25), -0.375, FinishReason.EOS_TOKEN),
                              FoundAnswer((3,), (-2.0,), -2.0, FinishReason.LENGTH)]),
    "vectors": Recording(pooled=[Pooled(0, 0, 2, b"12345678", None), Pooled(0, 2, 1, b"abcd")])}


@pytest.mark.parametrize("name", RECORDINGS)
def test_bytes_have_all_of_a_recording(name: str) -> None:
    assert Recording.decode(RECORDINGS[name].encode()) == RECORDINGS[name]


@pytest.mark.parametrize("change", [
    lambda data: b"", lambda data: data[:-1], lambda data: data + b"x", lambda data: data[:3],
    lambda data: b"\xff" * len(data), lambda data: data.replace(b"eos_token", b"eos_taken"),
    lambda data: data.replace(b'"reason"', b'"season"'), lambda data: b"\0\0\0\0" + data])
def test_damaged_bytes_are_refused(change: Any) -> None:
    data = RECORDINGS["tokens"].encode()
    assert change(data) != data
    with pytest.raises(Unreadable, match=r"^a kept answer can't be read: "):
        Recording.decode(change(data))
