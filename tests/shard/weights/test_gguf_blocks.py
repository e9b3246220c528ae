"""Each type of block against the dequantiser of the format's own library, bit for bit."""

import gguf
import numpy as np
import pytest
import torch

from penstock.shard.weights.gguf_blocks import BLOCK_TYPES, decode

ROWS, BLOCKS = 7, 3


def random_blocks(name: str) -> torch.Tensor:
    """Any bytes are blocks, but for numbers that are none."""
    kind, generator = BLOCK_TYPES[name], torch.Generator().manual_seed(1)
    raw = torch.randint(0, 256, (ROWS, BLOCKS, kind.num_bytes), dtype=torch.uint8, generator=generator)
    numbers = torch.randn(ROWS, BLOCKS, 2, generator=generator).half().view(torch.uint8)
    at = 208 if name == "Q6_K" else 0
    width = 4 if name.endswith(("_1", "4_K", "5_K")) else 2
    raw[:, :, at : at + width] = numbers[:, :, :width]
    return raw.view(ROWS, -1)


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_values_are_those_of_the_librarys_dequantiser(name: str) -> None:
    raw = random_blocks(name)
    expected = gguf.dequantize(raw.numpy(), gguf.GGMLQuantizationType[name])
    found = decode(name, raw, 0).dequantise().numpy()
    assert found.shape == (ROWS, BLOCKS * BLOCK_TYPES[name].size)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_a_later_part_has_the_same_values(name: str) -> None:
    raw, kind = random_blocks(name), BLOCK_TYPES[name]
    part = decode(name, raw[:, kind.num_bytes :].contiguous(), kind.size)
    assert torch.equal(part.dequantise(), decode(name, raw, 0).dequantise()[:, kind.size :])


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_sizes_are_the_librarys(name: str) -> None:
    kind = BLOCK_TYPES[name]
    assert (kind.size, kind.num_bytes) == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
