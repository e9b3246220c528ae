"""The list of those that wait."""

from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.priorities import BACKGROUND
from penstock.router.scheduling.waiting import Waiting
from penstock.router.scheduling.waits import Waits
from tests.router.scheduling.small_schedulers import make_sequence


def test_one_is_taken_out_from_between_others() -> None:
    waiting = Waiting(KvMemory(4, 8), Waits(lambda: 0.0))
    sequences = [make_sequence(id, length=id + 1) for id in range(4)]
    for sequence in reversed(sequences):
        waiting.add(sequence)
    waiting.take(sequences[2])
    assert waiting == [sequences[0], sequences[1], sequences[3]]
    assert waiting.num_left(is_background=False) == 1 + 2 + 4


def test_of_beams_with_one_place_the_right_one_is_taken_out() -> None:
    waiting = Waiting(KvMemory(4, 8), Waits(lambda: 0.0))
    beams = [make_sequence(id, age=5, is_beam=True) for id in range(3)]
    for beam in beams:
        waiting.add(beam)
    waiting.take(beams[1])
    assert waiting == [beams[0], beams[2]]


def test_those_of_the_background_are_counted_apart() -> None:
    waiting = Waiting(KvMemory(4, 8), Waits(lambda: 0.0))
    waiting.add(make_sequence(1, length=3))
    waiting.add(make_sequence(2, length=5, priority=BACKGROUND))
    assert (waiting.num_background, waiting.num_left(is_background=False), waiting.num_left(is_background=True)) == (
        1, 3, 8)
