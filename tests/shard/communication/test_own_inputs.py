"""How widths are dealt out: all of them, in order, and where bits are promised in the same segments."""

import pytest

from penstock.shard.communication.own_inputs import NUM_SEGMENTS, OwnInputs, dealt_out, inner_inputs, inputs_of_heads

LENGTHS = (1, 7, 8, 9, 15, 36, 96, 100, 704, 1408, 4864, 10944, 11007, 11008)


def owned(length: int, world_size: int) -> list[OwnInputs]:
    return [inner_inputs(length, rank, world_size) for rank in range(world_size)]


@pytest.mark.parametrize("length", LENGTHS)
def test_every_input_is_one_ranks(length: int) -> None:
    for world_size in range(1, 13):
        segments = [segment for own in owned(length, world_size) for segment in own.segments]
        assert [number for each in segments for number in range(each.start, each.stop)] == [*range(length)], world_size
        assert [own.part for own in owned(length, world_size)][-1].stop == length


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_ranks_have_the_segments_of_one(length: int, world_size: int) -> None:
    (one,) = owned(length, 1)
    assert len(one.segments) == NUM_SEGMENTS
    assert tuple(segment for own in owned(length, world_size) for segment in own.segments) == one.segments
    if length % NUM_SEGMENTS == 0:
        assert {*one.lengths} == {length // NUM_SEGMENTS}


@pytest.mark.parametrize(("length", "world_size", "lengths"), [
    (96, 3, [32, 32, 32]), (300, 3, [100, 100, 100]), (64, 3, [16, 16, 32]), (11008, 3, [3584, 3712, 3712]),
    (11007, 3, [3669, 3669, 3669]), (11008, 6, [1792, 1792, 1920, 1792, 1792, 1920]), (11, 5, [2, 2, 2, 2, 3]),
    (100, 8, [13, 13, 13, 13, 13, 13, 13, 9]), (9, 2, [8, 1]), (9, 8, [2, 2, 2, 2, 1, 0, 0, 0])])
def test_lengths(length: int, world_size: int, lengths: list[int]) -> None:
    found = owned(length, world_size)
    assert [sum(own.lengths) for own in found] == lengths
    assert [own.is_empty for own in found] == [not length for length in lengths]


def test_heads_are_cut_into_segments_where_these_are_whole() -> None:
    assert inputs_of_heads(slice(448, 896), 896, 1, 2) == inner_inputs(896, 1, 2)
    assert inputs_of_heads(slice(512, 960), 960, 1, 2).segments == (slice(512, 960),)
    assert inputs_of_heads(slice(0, 36), 36, 0, 1).segments == (slice(0, 36),)


@pytest.mark.parametrize(("count", "world_size"), [(5, 2), (9, 4), (7, 7), (128, 3)])
def test_things_are_dealt_out_evenly(count: int, world_size: int) -> None:
    dealt = [dealt_out(count, rank, world_size) for rank in range(world_size)]
    assert [number for own in dealt for number in range(own.start, own.stop)] == list(range(count))
    lengths = {own.stop - own.start for own in dealt}
    assert max(lengths) - min(lengths) <= 1
