"""What the formats of quantised weights share."""

import pytest
import torch

from penstock.shard.weights.packed_codes import finite


def test_a_ranks_column_of_scales_is_contiguous() -> None:
    """As kernels take them: a group of inputs may be all that a rank has."""
    scales = torch.arange(8, dtype=torch.float32).view(4, 2)[:, 1:]
    assert finite("scales", scales).is_contiguous()
    assert finite("scales", scales).tolist() == [[1], [3], [5], [7]]


def test_scales_that_are_no_numbers() -> None:
    with pytest.raises(ValueError, match="scales: 1 of 2 numbers are NaN or infinite"):
        finite("scales", torch.tensor([1, torch.nan]))
