"""`penstock quantize` on a tiny model: what it writes is what this server reads, and it goes on where it stopped."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from penstock.quantization import run as run_module
from penstock.quantization.command import main
from penstock.shard.communication.distributed import Group
from penstock.shard.layers.decoder import Decoder
from tests.family_models import make_family
from tests.paths import ROOT
from tests.tiny_models import make_tiny, prompt_logits, random_ids

IDS = random_ids(40, 8192)
TEXT = ROOT / "LICENSE"
ROUGH = 0.7                              # 4 bits of random weights; test_writers.py compares bits
OPTIONS = ["--calibration", str(TEXT), "--samples", "2", "--length", "64"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("plain"), vocab=8192, hidden=64, intermediate=128, layers=2, heads=4,
                     kv_heads=4, dtype=torch.bfloat16, has_tokenizer=True)


def run(model: Path, out: Path, *options: str) -> Result:
    return CliRunner().invoke(main, [str(model), str(out), *OPTIONS, *options])


def logits(folder: Path) -> torch.Tensor:
    found = prompt_logits(Decoder.load(folder, torch.float32, Group()), IDS)
    assert found is not None
    return found


@pytest.mark.parametrize(("options", "tolerance"), [
    (["--method", "rtn"], ROUGH),
    (["--method", "gptq", "--group", "32", "--asymmetric"], ROUGH),
    (["--method", "awq", "--group", "64"], ROUGH),
    (["--method", "smoothquant"], 0.1),
    (["--method", "llm-int8", "--granularity", "tensor"], 0.1),
    (["--method", "squeezellm"], ROUGH),
    (["--method", "rtn", "--bits", "8", "--calibrator", "mse", "--asymmetric"], 0.1),
], ids=lambda value: value[1] if isinstance(value, list) else "")
def test_what_is_written_is_read(options: list[str], tolerance: float, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(model, out, *options, "--judge", str(TEXT))
    assert done.exit_code == 0, done.output
    assert "perplexity" in done.output
    wanted, found = logits(model), logits(out)
    assert float((found - wanted).norm() / wanted.norm()) < tolerance
    report = json.loads((out / "report.json").read_text())
    assert len(report["linears"]) == 14
    assert report["bytes_after"] < report["bytes_before"]
    assert "mlp.down_proj" in (out / "report.svg").read_text()
    assert not list(out.glob("*.part"))
    assert not (out / "quantize.json").exists()


def test_two_runs_write_equal_bytes(model: Path, tmp_path: Path) -> None:
    """So groups that were quantised apart have equal files, too. The library's own order of metadata is another one
    with each file that is written."""
    for name in ("one", "two"):
        assert run(model, tmp_path / name, "--method", "rtn").exit_code == 0
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()} == files
    header = max(content for name, content in files.items() if name.endswith(".safetensors"))
    assert header.index(b'"format"') < header.index(b'"penstock.reports"')


def test_an_interrupted_run_goes_on(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert run(model, whole, "--method", "gptq").exit_code == 0
    once = run_module._quantised_block

    def interrupted(job: object, walk: object, index: int) -> object:
        if index == 1:
            raise KeyboardInterrupt
        return once(job, walk, index)  # type: ignore[arg-type]

    monkeypatch.setattr(run_module, "_quantised_block", interrupted)
    assert run(model, out, "--method", "gptq").exit_code != 0
    assert "has another quantisation that is not finished" in run(model, out, "--method", "rtn").output
    counted: list[int] = []
    monkeypatch.setattr(run_module, "_quantised_block", lambda job, walk, index: counted.append(index) or once(
        job, walk, index))
    assert run(model, out, "--method", "gptq").exit_code == 0
    assert counted == [1]
    for file in whole.glob("*.safetensors"):
        expected, found = load_file(file), load_file(out / file.name)
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_what_can_not_be_is_said(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").touch()
    assert f"{out} is not empty: give another directory" in run(model, out).output
    short = tmp_path / "short.txt"
    short.write_text("a few words")
    done = CliRunner().invoke(main, [str(model), str(tmp_path / "new"), "--calibration", str(short)])
    assert "tokens, at least" in done.output
    assert run(model, tmp_path / "once", "--method", "rtn").exit_code == 0
    assert "is already quantised (compressed-tensors)" in run(tmp_path / "once", tmp_path / "twice").output


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_damaged_weights_end_in_a_sentence(method: str, model: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(model, tmp_path / "damaged")
    tensors = load_file(damaged / "model.safetensors")
    tensors["model.layers.1.post_attention_layernorm.weight"][3] = torch.nan
    save_file(tensors, damaged / "model.safetensors", metadata={"format": "pt"})
    done = run(damaged, tmp_path / "out", "--method", method)
    assert done.exit_code == 1
    assert "model.layers.1.mlp.gate_proj: the inputs that the model computes are not all finite numbers" in done.output


def test_rounding_needs_no_text_and_other_methods_do(model: Path, tmp_path: Path) -> None:
    codes = []
    for name, options in (("with", OPTIONS), ("without", ["--samples", "2", "--length", "64"])):
        done = CliRunner().invoke(main, [str(model), str(tmp_path / name), "--method", "rtn", *options])
        assert done.exit_code == 0, done.output
        codes.append(load_file(tmp_path / name / "model-00001-of-00003.safetensors"))
    assert codes[0].keys() == codes[1].keys()
    assert all(torch.equal(codes[0][name], codes[1][name]) for name in codes[0])
    refused = CliRunner().invoke(main, [str(model), str(tmp_path / "gptq"), "--method", "gptq"])
    assert refused.exit_code == 1
    assert "--method gptq chooses the codes by a text: give one as --calibration" in refused.output


@pytest.mark.parametrize(("family", "keys", "message"), [
    ("deepseek_v2", {}, "blocks of DeepseekV2ForCausalLM have experts, a state or latent rows, whose linears"),
    ("llama", {"intermediate_size": 100}, "the inner size 100 is no multiple of 8")])
def test_blocks_that_no_method_knows_are_refused(
    family: str, keys: dict[str, int], message: str, tmp_path: Path
) -> None:
    refused = run(make_family(tmp_path / "model", family, **keys), tmp_path / "out", "--method", "rtn")
    assert refused.exit_code == 1
    assert message in refused.output
