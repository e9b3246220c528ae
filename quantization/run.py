"""Quantises a checkpoint block by block; what is done stays when the run is interrupted."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from tqdm import tqdm

from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.quantization.block import BlockWeights, Method
from penstock.quantization.methods import awq, gptq, rtn, smoothquant, squeezellm
from penstock.quantization.report import LinearReport, Report
from penstock.quantization.settings import Settings, SettingsError
from penstock.quantization.walk import Walk
from penstock.quantization.writers import compressed_tensors, levels
from penstock.shard.models.model_options import BF16, ModelOptions
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.safetensors_files import INDEX_FILE
from penstock.shard.weights.writing import copy_rest, save, write_index

METHODS: dict[str, Method] = {
    "rtn": rtn.quantise, "gptq": gptq.quantise, "awq": awq.quantise, "smoothquant": smoothquant.quantise,
    "llm-int8": rtn.quantise_with_int8_inputs, "squeezellm": squeezellm.quantise}
WRITERS: dict[str, ModuleType] = {"compressed-tensors": compressed_tensors, "levels": levels}
STATE = "quantize.json"
NOT_COPIED = ("config.json", INDEX_FILE, STATE, "report.json")
REPORTS = "penstock.reports"             # in a file's metadata


@dataclass(frozen=True, slots=True)
class Job:
    """A checkpoint of plain weights, where the other is to be, how it is made, and the texts to calibrate with."""

    model: Path
    out: Path
    settings: Settings
    windows: Tensor                      # int64 [W, T]

    @property
    def marks(self) -> dict[str, Any]:
        """Returns the values that must be equal for a run to go on where another stopped."""
        marks: dict[str, Any] = json.loads(json.dumps({
            "model": str(self.model), "digest": Checkpoint(self.model).digest(), "settings": asdict(self.settings),
            "windows": [list(self.windows.shape), int(self.windows.sum())]}, default=str))
        return marks


def quantise(job: Job, has_bar: bool) -> Report:
    """Writes the checkpoint, and returns what came of each linear. Raises SettingsError, and the errors of checkpoints.

    Each block is a file of its own, so that a run that was interrupted goes on behind the last.
    """
    job.out.mkdir(parents=True, exist_ok=True)
    _check_state(job)
    _copy_rest(job)
    walk = Walk(job.model, job.windows)
    stored_in = read_model_config(job.out, ModelOptions(activations=BF16)).format_of
    num_files = walk.config.num_layers + 1
    files = [job.out / f"model-{number:05}-of-{num_files:05}.safetensors" for number in range(1, num_files + 1)]
    for index in tqdm(range(walk.config.num_layers), unit="block", disable=not has_bar):
        if not files[index].exists():
            _save(files[index], *_quantised_block(job, walk, index))
        if index + 1 < walk.config.num_layers:
            walk.go_on(index, load_file(files[index]), stored_in)
    _save(files[-1], {name: walk.stored(name) for name in walk.names_outside_blocks()}, [])
    write_index(job.out, files)
    (job.out / STATE).unlink()
    reports = [LinearReport(**each) for file in files for each in _reports(file)]
    return Report(job.settings.method, reports, _size(job.model), sum(file.stat().st_size for file in files))


def _check_state(job: Job) -> None:
    state = job.out / STATE
    if state.exists():
        if json.loads(state.read_text()) != job.marks:
            raise SettingsError(f"{job.out} has another quantisation that is not finished: give another directory, or "
                                "remove it")
    elif any(job.out.iterdir()):
        raise SettingsError(f"{job.out} is not empty: give another directory")
    else:
        state.write_text(json.dumps(job.marks))


def _copy_rest(job: Job) -> None:
    """Copies all files but the weights, and says in config.json how the weights are stored."""
    copy_rest(job.model, job.out, NOT_COPIED)
    config = json.loads((job.model / "config.json").read_bytes())
    config["quantization_config"] = WRITERS[job.settings.format].config(job.settings)
    (job.out / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def _quantised_block(job: Job, walk: Walk, index: int) -> tuple[dict[str, Tensor], list[LinearReport]]:
    """Returns a block's tensors as the file has them."""
    block = walk.read(index)
    plain = dict(block.tensors)
    quantised = METHODS[job.settings.method](block, job.settings)
    writer, dtype = WRITERS[job.settings.format], walk.config.dtype
    tensors = {name: quantised.changed.get(name, tensor).to(dtype) for name, tensor in plain.items()
               if name.removesuffix(".weight") not in quantised.linears}
    reports = []
    for linear, coded in quantised.linears.items():
        own = writer.tensors(linear, coded, job.settings)
        tensors |= own
        reports.append(LinearReport(linear, _error(block, linear, coded), block.statistics[linear].num_outliers,
                                    sum(tensor.nbytes for tensor in own.values())))
    return tensors, reports


def _error(block: BlockWeights, linear: str, coded: CodedWeight) -> float:
    """Returns the error beside the weight that the method rounded, which may have taken factors of its inputs over."""
    wanted, statistics = block.weight(linear), block.statistics[linear]
    return statistics.error(wanted, coded.dequantise())


def _save(path: Path, tensors: dict[str, Tensor], reports: list[LinearReport]) -> None:
    save(path, tensors, {REPORTS: json.dumps([asdict(each) for each in reports])})


def _reports(path: Path) -> list[dict[str, Any]]:
    with safe_open(path, framework="pt") as file:
        reports: list[dict[str, Any]] = json.loads(file.metadata()[REPORTS])
    return reports


def _size(model: Path) -> int:
    return sum(path.stat().st_size for path in model.glob("*.safetensors"))
