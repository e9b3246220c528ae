"""The values of coded weights, and where their sums are cut."""

import pytest
import torch

from penstock.kernels.quantised_linear.coded_weight import CodedWeight, stack
from penstock.kernels.quantised_linear.pieces import cut
from tests.kernels.coded import KINDS, make

SHAPE = (5, 512 + 64)


@pytest.mark.parametrize("name", KINDS)
def test_values_are_those_of_each_code(name: str) -> None:
    coded, kind = make(name, *SHAPE), KINDS[name]
    values = coded.dequantise()
    for output, column in ((0, 0), (4, 575), (2, 300), (3, 33)):
        group, span = column // kind.group, column // (kind.span or kind.group)
        code = int(coded.codes[output, column])
        level = coded.table[code].item() if coded.table is not None else code - kind.zero
        if coded.zeros is not None:
            level = code - int(coded.zeros[output, group])
        scale, minimum = coded.scales[output, span], torch.tensor(0.0)
        if coded.minima is not None:
            minimum = coded.minima[output, span]
        if coded.factors is not None:
            scale = scale * coded.factors[output, group]
        if coded.offsets is not None:
            minimum = minimum * coded.offsets[output, group]
        assert values[output, column] == level * scale + minimum


@pytest.mark.parametrize("name", KINDS)
def test_parts_have_the_values_of_the_whole(name: str) -> None:
    coded = make(name, *SHAPE)
    values = coded.dequantise()
    for begin, end in ((0, 72), (72, 144), (504, 576), (1, 2), (33, 300)):
        assert torch.equal(coded.inputs(slice(begin, end)).dequantise(), values[:, begin:end])
    assert torch.equal(coded.rows(torch.tensor([4, 0])).dequantise(), values[[4, 0]])


@pytest.mark.parametrize("name", KINDS)
def test_weights_of_one_form_are_stacked(name: str) -> None:
    first, second = make(name, *SHAPE), make(name, 3, SHAPE[1], seed=1)
    assert torch.equal(stack([first, second]).dequantise(), torch.cat((first.dequantise(), second.dequantise())))
    with pytest.raises(ValueError, match="coded weights of different forms"):
        stack([first, make("q4_1" if name == "q4_0" else "q4_0", *SHAPE)])


def test_pieces_end_at_groups_and_segments() -> None:
    assert [(piece.begin, piece.end) for piece in cut(0, 100, 32, 1)] == [(0, 32), (32, 64), (64, 96), (96, 100)]
    assert [(piece.begin, piece.end) for piece in cut(10, 40, 32, 1)] == [(0, 22), (22, 40)]
    whole = cut(0, 640, 128, 8)
    for rank in range(4):
        own = [(piece.begin + 160 * rank, piece.end + 160 * rank, piece.group + 160 * rank // 128)
               for piece in cut(160 * rank, 160, 128, 2)]
        assert own == [(piece.begin, piece.end, piece.group) for piece in whole if piece.segment // 2 == rank]


@pytest.mark.parametrize(("change", "message"), [
    ({"bits": 5}, "5 bits, expected 4 or 8"),
    ({"group": 0}, "group 0 and start 0"),
    ({"start": -1}, "group 32 and start -1"),
    ({"span": 64}, "span 64 without factors"),
    ({"factors": torch.zeros(2, 2, dtype=torch.int16)}, "span 0 with factors"),
    ({"offsets": torch.zeros(2, 2, dtype=torch.int16)}, "offsets are to be where"),
    ({"zeros": torch.zeros(2, 2, dtype=torch.int16), "table": torch.zeros(16)}, "a table with 4 bits and zeros"),
    ({"scales": torch.zeros(2, 3)}, r"scales has shape \[2, 3\], expected \[2, 2\]"),
    ({"minima": torch.zeros(2, 2).half()}, r"minima \[2, 2\] has dtype torch.float16"),
    ({"codes": torch.zeros(2, 64)}, r"codes \[2, 64\] has dtype torch.float32"),
])
def test_what_does_not_fit_together_is_refused(change: dict[str, object], message: str) -> None:
    fitting = {"codes": torch.zeros(2, 64, dtype=torch.uint8), "bits": 4, "group": 32, "scales": torch.zeros(2, 2)}
    CodedWeight(**fitting)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        CodedWeight(**fitting | change)  # type: ignore[arg-type]
