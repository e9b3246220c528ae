from pathlib import Path

import pytest
import torch

from penstock.kernels import memory

PAGE = 2 << 20


@pytest.mark.parametrize("num_bytes", [0, 1, 100, PAGE, 15 * PAGE, 16 * PAGE, 16 * PAGE + 1])
def test_pieces_are_aligned_writable_and_apart(num_bytes):
    pieces = [memory.huge(num_bytes) for _ in range(2)]
    for value, piece in enumerate(pieces):
        assert piece.shape == (num_bytes,)
        assert piece.dtype == torch.uint8
        assert piece.data_ptr() % 64 == 0 or num_bytes == 0
        piece.fill_(value)
    assert all((piece == value).all() for value, piece in enumerate(pieces))


def test_large_pieces_begin_at_a_page_and_go_back_to_the_system():
    num_bytes = 96 << 20
    before = resident()
    piece = memory.huge(num_bytes).fill_(1)
    assert piece.data_ptr() % PAGE == 0
    assert resident() - before >= num_bytes
    row = piece[:10]
    del piece
    assert resident() - before >= num_bytes
    del row
    assert resident() - before < num_bytes // 2


def test_what_inference_takes_leaves_the_rest_to_others():
    with torch.inference_mode():
        memory.huge(15 * PAGE)
        taken = memory.huge(100)
    assert not taken.is_inference()
    memory.huge(100).fill_(1)


def resident() -> int:
    """Returns the bytes in memory, counted page by page, but for those of files, which the system takes back at will.
    """
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))
