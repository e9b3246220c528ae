"""Masks between the thread that reads orders and the one that samples."""

import threading

import numpy as np
import pytest

from penstock.contract.plan import Plan
from penstock.shard.execution.masks import LateMasks
from tests.shard.step_programs import make_row


def step(step_id: int, *late_slots: int) -> Plan:
    rows = (make_row(slot, 5, from_last_sample=True, late_mask=slot in late_slots) for slot in range(4))
    return Plan(step_id, tuple(rows))


@pytest.fixture
def masks() -> LateMasks:
    masks = LateMasks(vocab_size=40)
    for planned in (step(5), step(6, 1, 3), step(7, 2)):
        masks.expect(planned)
    return masks


def test_a_step_finds_its_masks_whichever_came_first(masks: LateMasks) -> None:
    assert masks.expected_steps == [6, 7]
    masks.put(7, {2: bytes(range(1, 9))})
    masks.put(6, {3: b"\xff" * 8})
    assert masks.expected_steps == []
    assert masks.take(6)[3].tolist() == [[-1, -1]]
    assert masks.take(7)[2].tolist() == [[0x04030201, 0x08070605]]


def test_who_waits_goes_on_when_they_come(masks: LateMasks) -> None:
    taken: list[object] = []
    waiting = threading.Thread(target=lambda: taken.append(masks.take(6)))
    waiting.start()
    masks.put(7, {2: b"\x01" * 8})
    waiting.join(0.05)
    assert waiting.is_alive()
    masks.put(6, {})
    waiting.join(10)
    assert taken == [{}]


def test_who_waits_goes_on_when_nothing_will_come(masks: LateMasks) -> None:
    taken: list[object] = []
    waiting = threading.Thread(target=lambda: taken.append(masks.take(6)))
    waiting.start()
    masks.end()
    waiting.join(10)
    assert taken == [{}]
    assert masks.take(7) == {}


def test_what_came_before_the_end_counts(masks: LateMasks) -> None:
    masks.put(6, {1: b"\x01" * 8})
    masks.end()
    assert masks.take(6)[1].dtype == np.int32


@pytest.mark.parametrize(("step_id", "bits", "message"), [
    (5, {}, r"masks\.step_id is 5, the steps that wait for masks are \[6, 7\]"),
    (8, {1: b""}, r"masks\.step_id is 8"),
    (6, {2: b"\x01" * 8}, r"masks of step 6, slot 2: the slots that wait for a mask are \[1, 3\]"),
    (6, {1: b"\x01" * 4}, r"masks of step 6, slot 1: 4 bytes, the row samples 1 tokens and a mask of 40 tokens has 8"),
    (6, {1: b"\x01" * 12}, r"masks of step 6, slot 1: 12 bytes, the row samples 1 tokens and a"),
    (6, {1: bytes(8)}, r"masks of step 6, slot 1: none of 40 tokens is allowed"),
    (6, {1: bytes(5) + b"\xff" * 3}, r"masks of step 6, slot 1: none of 40 tokens is allowed"),
])
def test_what_no_step_waits_for(masks: LateMasks, step_id: int, bits: dict[int, bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        masks.put(step_id, bits)


def test_a_row_with_drafts_has_a_mask_for_each_sample() -> None:
    masks = LateMasks(vocab_size=40)
    masks.expect(Plan(3, (make_row(1, 5, [7, 8, 9], num_drafts=2, late_mask=True),)))
    with pytest.raises(ValueError, match="slot 1: 8 bytes, the row samples 3 tokens and a mask of 40 tokens has 8"):
        masks.put(3, {1: b"\x01" * 8})
    with pytest.raises(ValueError, match="slot 1: none of 40 tokens is allowed"):
        masks.put(3, {1: b"\x01" * 8 + bytes(5) + b"\xff" * 3 + b"\x01" * 8})
    masks.put(3, {1: b"\x01" * 8 + b"\x02" * 8 + b"\x03" * 8})
    assert masks.take(3)[1][:, 0].tolist() == [0x01010101, 0x02020202, 0x03030303]


def test_masks_come_once(masks: LateMasks) -> None:
    masks.put(6, {})
    with pytest.raises(ValueError, match=r"masks\.step_id is 6, the steps that wait for masks are \[7\]"):
        masks.put(6, {})


def test_the_last_token_of_a_vocabulary_is_enough() -> None:
    for vocab_size in (32, 33, 40, 64):
        masks = LateMasks(vocab_size)
        masks.expect(step(0, 0))
        words = np.zeros(-(-vocab_size // 32), np.uint32)
        words[-1] = 1 << (vocab_size - 1) % 32
        masks.put(0, {0: words.tobytes()})
        assert masks.take(0)[0].view(np.uint32).tolist() == [words.tolist()]
