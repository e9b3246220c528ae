"""Rounded weights are near the given ones, of every part of them alike."""

from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file

from penstock.shard.models.rounding_methods import FP4, NF4
from penstock.shard.weights.rounding import round_to_nearest, round_to_table
from tests.shard.weights.library_files import SHAPES, decoded
from tests.shard.weights.quantised_files.make import make_dense

WEIGHT = torch.randn(24, 320, generator=torch.Generator().manual_seed(1)) * 0.05


@pytest.mark.parametrize("group", [0, 32, 128])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_no_number_is_further_off_than_its_scale_allows(bits: int, symmetric: bool, group: int) -> None:
    coded = round_to_nearest(WEIGHT, bits, group, symmetric)
    scales = coded.group_scales().abs().repeat_interleave(group or 320, dim=1)[:, :320]
    # Of 4 bits the level 8 is missing, and scales are rounded, which moves the outermost level.
    slack = 1.01 if bits == 4 and symmetric else 0.5 + 2**bits * 2**-11
    assert ((coded.dequantise() - WEIGHT).abs() <= slack * scales).all()
    assert (scales < 0.4 / 2 ** (bits - 1)).all()


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_part_of_the_inputs_has_the_codes_that_it_has_in_the_whole(symmetric: bool) -> None:
    whole = round_to_nearest(WEIGHT, 4, 32, symmetric)
    part = round_to_nearest(WEIGHT[:, 64:300], 4, 32, symmetric, start=64)
    assert torch.equal(part.inputs(slice(64, 288)).dequantise(), whole.dequantise()[:, 64:288])


def test_four_bits_are_as_near_as_those_of_ggufs_quantiser() -> None:
    theirs = torch.from_numpy(gguf.dequantize(gguf.quantize(WEIGHT.numpy(), gguf.GGMLQuantizationType.Q4_0),
                                              gguf.GGMLQuantizationType.Q4_0))
    ours = round_to_nearest(WEIGHT, 4, 32, symmetric=True).dequantise()
    assert (ours - WEIGHT).square().mean() <= 1.001 * (theirs - WEIGHT).square().mean()


@pytest.mark.parametrize("symmetric", [True, False])
def test_zeros_stay_zeros_and_what_is_not_finite_is_heard_of(symmetric: bool) -> None:
    weight = WEIGHT.clone()
    weight[0] = 0
    weight[1, 3], weight[2, 40] = torch.nan, torch.inf
    coded = round_to_nearest(weight, 4, 32, symmetric)
    assert (coded.dequantise()[0] == 0).all()
    finite = torch.isfinite(coded.group_scales())
    assert not finite[1, 0]
    assert not finite[2, 1]
    assert finite.sum() == finite.numel() - 2


def test_tiny_numbers_are_not_lost_in_float16() -> None:
    coded = round_to_nearest(WEIGHT * 1e-6, 8, 32, symmetric=True)
    assert torch.allclose(coded.dequantise(), WEIGHT * 1e-6, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "table"), [("nf4", NF4), ("fp4", FP4)])
def test_levels_of_a_table_are_those_that_bitsandbytes_takes(name: str, table: torch.Tensor, tmp_path: Path) -> None:
    dense = load_file(make_dense(tmp_path) / "model.safetensors")
    for linear, tensor in dense.items():
        if linear.rpartition(".")[0].endswith(tuple(SHAPES)):
            theirs = decoded(name, linear.removesuffix(".weight"))
            ours = round_to_table(tensor, table, 64)
            assert torch.equal(ours.levels(), theirs.levels())
            assert name == "nf4" or torch.equal(ours.scales, theirs.scales)  # which are rounded in that file
