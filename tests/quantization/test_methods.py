"""What each method makes of one block, beside rounding to the nearest."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from penstock.quantization.block import BlockWeights, Quantised, Reader
from penstock.quantization.methods import awq, gptq, rtn, smoothquant, squeezellm
from penstock.quantization.settings import Settings, SettingsError, make_settings
from penstock.quantization.statistics import Statistics
from penstock.shard.models.names import USUAL_NAMES

NAMES = USUAL_NAMES.of_block(0)
INPUTS, TOKENS = 96, 400


def settings(method: str, **changed: object) -> Settings:
    given = {"bits": None, "group": 32 if method not in ("smoothquant", "llm-int8") else None, "granularity": None,
             "symmetric": True, "calibrator": None, "percentile": None, "format_": None, "scale_dtype": torch.float16}
    return make_settings(method, **(given | changed))  # type: ignore[arg-type]


def inputs() -> Tensor:
    """Inputs that depend on one another, some of which are far larger than others."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(TOKENS, 24, generator=generator) @ torch.randn(24, INPUTS, generator=generator)
    x += torch.randn(TOKENS, INPUTS, generator=generator)
    return x * torch.logspace(-1, 1.3, INPUTS)[torch.randperm(INPUTS, generator=generator)]


def block() -> BlockWeights:
    generator = torch.Generator().manual_seed(2)
    statistics = Statistics.empty(INPUTS)
    statistics.add(inputs())
    tensors = {f"{NAMES.attention_norm}.weight": torch.rand(INPUTS, generator=generator) + 0.5}
    tensors |= {f"{name}.weight": torch.randn(48, INPUTS, generator=generator) for name in (NAMES.q, NAMES.k)}
    return BlockWeights(NAMES, (Reader((NAMES.q, NAMES.k), norm=NAMES.attention_norm),), tensors,
                        dict.fromkeys((NAMES.q, NAMES.k), statistics))


def output_error(quantised: Quantised) -> float:
    """Returns the squared error of the outputs, in which norms that changed are counted."""
    plain = block()
    norm = f"{NAMES.attention_norm}.weight"
    factors = quantised.changed.get(norm, plain.tensors[norm]) / plain.tensors[norm]
    x = inputs()
    return sum(float((x * factors @ coded.dequantise().T - x @ plain.weight(name).T).square().sum())
               for name, coded in quantised.linears.items())


@pytest.mark.parametrize("symmetric", [True, False])
def test_gptq_is_far_better_than_rounding(symmetric: bool) -> None:
    rounded = rtn.quantise(block(), settings("rtn", symmetric=symmetric))
    found = gptq.quantise(block(), settings("gptq", symmetric=symmetric))
    assert output_error(found) < 0.5 * output_error(rounded)
    for name, coded in found.linears.items():
        assert torch.equal(coded.scales, rounded.linears[name].scales)


def test_gptq_of_fewer_texts_than_inputs() -> None:
    few = block()
    statistics = Statistics.empty(INPUTS)
    statistics.add(inputs()[:5])
    found = gptq.quantise(replace(few, statistics=dict.fromkeys(few.statistics, statistics)), settings("gptq"))
    assert output_error(found) < 3 * output_error(rtn.quantise(block(), settings("rtn")))


def test_gptq_without_any_text_is_rounding() -> None:
    silent = replace(block(), statistics=dict.fromkeys((NAMES.q, NAMES.k), Statistics.empty(INPUTS)))
    found, expected = gptq.quantise(silent, settings("gptq")), rtn.quantise(block(), settings("rtn"))
    assert all(torch.equal(found.linears[name].codes, expected.linears[name].codes) for name in found.linears)


def test_awq_is_better_than_rounding() -> None:
    for calibrator in ("min-max", "mse"):
        found = awq.quantise(block(), settings("awq", calibrator=calibrator))
        assert output_error(found) < 0.8 * output_error(rtn.quantise(block(), settings("rtn")))


@pytest.mark.parametrize("method", [awq, smoothquant])
def test_moved_factors_leave_the_model_what_it_is(method: object, monkeypatch: pytest.MonkeyPatch) -> None:
    given = block()
    method.quantise(given, settings("awq" if method is awq else "smoothquant"))  # type: ignore[attr-defined]
    norm, plain = f"{NAMES.attention_norm}.weight", block()
    x = inputs()
    for name in (NAMES.q, NAMES.k):
        found = x * (given.tensors[norm] / plain.tensors[norm]) @ given.weight(name).T
        expected = x @ plain.weight(name).T
        assert float((found - expected).norm() / expected.norm()) < 1e-5


def test_smoothquant_evens_out_the_inputs() -> None:
    found = smoothquant.quantise(block(), settings("smoothquant"))
    norm = f"{NAMES.attention_norm}.weight"
    factors = found.changed[norm] / block().tensors[norm]
    before, after = inputs().abs().amax(0), (inputs() * factors).abs().amax(0)
    assert float(after.max() / after.median()) < 0.5 * float(before.max() / before.median())


def test_squeezellm_is_better_than_evenly_spaced_levels() -> None:
    found = squeezellm.quantise(block(), settings("squeezellm", group=32))
    assert output_error(found) < output_error(rtn.quantise(block(), settings("rtn")))
    for coded in found.linears.values():
        assert coded.table is not None
        assert 0.0 in coded.table.tolist()
        assert float(coded.table.abs().max()) == 1.0


def test_outliers_are_counted() -> None:
    statistics = Statistics.empty(3)
    statistics.add(torch.tensor([[6.0, -5.9, -7.0], [0.0, 0.0, 1.0]]))
    assert statistics.num_outliers == 2


@pytest.mark.parametrize(("method", "changed", "message"), [
    ("smoothquant", {"bits": 4}, "--method smoothquant has --bits 8 and symmetric levels"),
    ("llm-int8", {"symmetric": False}, "--method llm-int8 has --bits 8 and symmetric levels"),
    ("smoothquant", {"granularity": "group"}, "--granularity channel or tensor"),
    ("rtn", {"granularity": "channel", "group": 64}, "--group 64: --granularity channel has no groups"),
    ("squeezellm", {"bits": 8}, "--method squeezellm has --bits 4 and groups"),
    ("rtn", {"format_": "levels"}, "--method rtn --format levels: expected compressed-tensors"),
    ("rtn", {"group": 48}, "--group 48: expected a power of two from 8 to 1024"),
])
def test_settings_that_contradict_one_another_are_named(method: str, changed: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings(method, **changed)
