"""Sums of tokens: those that one after the other gives, whatever the chunks."""

import math

import pytest
import torch
from torch import Tensor

from penstock.checkpoints.sentence_modules import POOLINGS
from penstock.shard.pooling.sums import Running, Tokens, add_in_order, add_tokens, pooled

WIDTH = 24


def rows(length: int, seed: int = 0) -> Tensor:
    return torch.randn(length, WIDTH, generator=torch.Generator().manual_seed(seed))


def test_sums_are_made_row_after_row() -> None:
    x, counts = rows(50), [20, 0, 29, 1]
    sums = torch.stack([torch.full((WIDTH,), float(number)) for number in range(4)])
    expected, begin = sums.clone(), 0
    for number, count in enumerate(counts):
        for row in x[begin:begin + count]:
            expected[number] = expected[number] + row
        begin += count
    add_in_order(sums, x, counts)
    assert torch.equal(sums, expected)


@pytest.mark.parametrize("chunk", [1, 3, 7, 16])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_chunks_change_no_bit(pooling: str, chunk: int) -> None:
    texts = [rows(16, 1), rows(9, 2), rows(1, 3)]

    def run(chunk: int) -> list[Tensor]:
        running = [Running() for _ in texts]
        for start in range(0, 16, chunk):
            parts = [text[start:start + chunk] for text in texts]
            add_tokens([pooling, "mean"], [Tokens(each, start, len(part)) for each, part in zip(
                running, parts, strict=True)], torch.cat(parts))
        return [pooled([pooling, "mean"], each) for each in running]

    assert all(map(torch.equal, run(chunk), run(16)))


def test_poolings_are_what_their_names_say() -> None:
    x, running = rows(11).double(), Running()
    add_tokens(POOLINGS, [Tokens(running, 2, 11)], x.float())
    weights = torch.arange(3, 14).double()[:, None]
    expected = [x[0], x.amax(0), x.mean(0), x.sum(0) / math.sqrt(11), (x * weights).sum(0) / weights.sum(), x[-1]]
    torch.testing.assert_close(pooled(POOLINGS, running), torch.cat(expected).float())
