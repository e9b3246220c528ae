"""A weight whose inputs are packed in another order gives what it gives in theirs."""

import torch

from penstock.kernels.linear import linear, pack, weight_rows
from penstock.kernels.linear.gathered import gathered


def test_inputs_find_their_columns() -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randint(-8, 8, (24, 40), generator=generator).float()
    x = torch.randint(-8, 8, (3, 40), generator=generator).float()  # whole, so that no order of sums matters
    order = torch.randperm(40, generator=generator)
    packed = gathered(pack(weight[:, order].contiguous()), order)
    assert torch.equal(linear(x, packed), x @ weight.t())
    ids = torch.tensor([5, 0, 23])
    assert torch.equal(weight_rows(packed, ids), weight[ids])


def test_inputs_in_their_own_order_are_not_touched() -> None:
    packed = pack(torch.ones(16, 16))
    assert gathered(packed, None) is packed
