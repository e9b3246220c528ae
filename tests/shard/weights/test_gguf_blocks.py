"""Each type of block against the dequantiser of the format's own library, bit for bit."""

import gguf
import numpy as np
import pytest
import torch

from penstock.shard.weights.gguf_blocks import DECODERS, decode
from penstock.system.ggml_types import GGML_TYPES, OTHERS

ROWS, BLOCKS = 7, 3


def random_blocks(name: str) -> torch.Tensor:
    """Any bytes are blocks, but for numbers that are none."""
    kind, generator = GGML_TYPES[name], torch.Generator().manual_seed(1)
    raw = torch.randint(0, 256, (ROWS, BLOCKS, kind.num_bytes), dtype=torch.uint8, generator=generator)
    numbers = torch.randn(ROWS, BLOCKS, 2, generator=generator).half().view(torch.uint8)
    at = 208 if name == "Q6_K" else 0
    width = 4 if name.endswith(("_1", "4_K", "5_K")) else 2
    raw[:, :, at : at + width] = numbers[:, :, :width]
    return raw.view(ROWS, -1)


@pytest.mark.parametrize("name", DECODERS)
def test_values_are_those_of_the_librarys_dequantiser(name: str) -> None:
    raw = random_blocks(name)
    expected = gguf.dequantize(raw.numpy(), gguf.GGMLQuantizationType[name])
    found = decode(name, raw, 0).dequantise().numpy()
    assert found.shape == (ROWS, BLOCKS * GGML_TYPES[name].size)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", DECODERS)
def test_a_later_part_has_the_same_values(name: str) -> None:
    raw, kind = random_blocks(name), GGML_TYPES[name]
    part = decode(name, raw[:, kind.num_bytes :].contiguous(), kind.size)
    assert torch.equal(part.dequantise(), decode(name, raw, 0).dequantise()[:, kind.size :])


@pytest.mark.parametrize("name", GGML_TYPES)
def test_sizes_and_numbers_are_the_librarys(name: str) -> None:
    kind, known = GGML_TYPES[name], gguf.GGMLQuantizationType[name]
    assert kind.number == known
    assert (kind.size, kind.num_bytes) == gguf.GGML_QUANT_SIZES[known]


def test_the_other_types_have_the_librarys_names() -> None:
    read = {kind.number for kind in GGML_TYPES.values()}
    assert {known.value: known.name for known in gguf.GGMLQuantizationType if known not in read} == OTHERS
