"""What quantised weights cost the demo model, on sources that it was not trained on."""

from pathlib import Path

import pytest
from torch import Tensor

from penstock.bench.engine.weight_quality import of_files, of_methods, of_rounded, windows
from penstock.bench.programs.root import DEMO_MODEL
from penstock.quantization.perplexity import perplexity
from tests.gguf_files.demo import Kind, write_demo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tensor, Tensor]:
    return windows(24, 16, tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def plain(texts: tuple[Tensor, Tensor]) -> float:
    return perplexity(DEMO_MODEL, texts[0])


def test_8_bits_cost_a_thousandth_and_4_bits_two_hundredths(
    texts: tuple[Tensor, Tensor], plain: float, tmp_path: Path
) -> None:
    files = [write_demo(tmp_path / f"{kind.name}.gguf", kind) for kind in (Kind.Q8_0, Kind.Q4_0, Kind.Q4_K)]
    found = dict(of_rounded(["int8", "int4"], texts[0])) | dict(of_files(files, texts[0]))
    most = {"--quantize int8": 1.001, "Q8_0.gguf": 1.001} | dict.fromkeys(
        ("--quantize int4", "Q4_0.gguf", "Q4_K.gguf"), 1.02)
    assert all(0.999 * plain < found[name] <= most[name] * plain for name in most), found


def test_gptq_and_awq_are_better_than_rounding_at_the_same_bits(
    texts: tuple[Tensor, Tensor], plain: float, tmp_path: Path
) -> None:
    text, calibration = texts
    methods = [("rtn", 32), ("awq", 32), ("gptq", 32), ("smoothquant", None)]
    found = dict(of_methods(methods, calibration, text, tmp_path))
    assert max(found["awq g32"], found["gptq g32"]) < found["rtn g32"] <= 1.02 * plain, found
    assert found["smoothquant"] <= 1.001 * plain
