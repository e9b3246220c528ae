"""The modules of a sentence-transformers model, which modules.json lists: each has a folder of its own."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from penstock.system.fields import Fields, FileError
from penstock.system.json_objects import parse_object
from penstock.system.regular_files import read_regular

MODULES = "modules.json"
WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
MAX_BYTES, MAX_VALUES, MAX_MODULES = 1 << 20, 1 << 14, 32

POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""In the order in which the old flags put them one behind the other."""
OLD_FLAGS = {"cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens", "mean": "pooling_mode_mean_tokens",
             "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
             "weightedmean": "pooling_mode_weightedmean_tokens", "lasttoken": "pooling_mode_lasttoken"}
ACTIVATIONS = {"Identity": "identity", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu",
               "Sigmoid": "sigmoid"}
"""By the names of torch's classes."""


@dataclass(frozen=True, slots=True)
class PoolingModule:
    """Makes one vector of those of the tokens, or several that lie one behind the other."""

    poolings: tuple[str, ...] = ("mean",)
    includes_prompt: bool = True


@dataclass(frozen=True, slots=True)
class DenseModule:
    """Multiplies a vector by a matrix. Its weights are in its folder."""

    folder: Path = field(repr=False)
    in_features: int
    out_features: int
    has_bias: bool
    activation: str                      # of ACTIVATIONS


@dataclass(frozen=True, slots=True)
class NormalizeModule:
    """Scales a vector to a length of 1."""


@dataclass(frozen=True, slots=True)
class SpladeModule:
    """Makes a sparse vector of the logits that a language model gives the places of the tokens."""

    sums: bool = False                   # over the tokens, in place of the largest
    is_double: bool = False              # the logarithm is taken twice


@dataclass(frozen=True, slots=True)
class LogitScoreModule:
    """Scores a text by the logit of one token behind it, less that of another."""

    true_token: int
    false_token: int | None = None


Layer = DenseModule | NormalizeModule


def module_folders(directory: Path) -> list[PurePosixPath]:
    """Returns the folders that modules.json names, below the model's; none without that file. Raises FileError."""
    return [place for described in _listed(directory) if (place := _place(described)).parts]


def _listed(directory: Path) -> list[Fields]:
    """Returns the entries of modules.json, one for each module."""
    path = directory / MODULES
    if not path.exists():
        return []
    try:
        described = orjson.loads(read_regular(path, MAX_BYTES))
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise FileError(path, f"it is not JSON: {error}") from error
    if not isinstance(described, list) or not all(isinstance(each, dict) for each in described):
        raise FileError(path, "it is no list of modules")
    if len(described) > MAX_MODULES:
        raise FileError(path, f"it has {len(described)} modules, and {MAX_MODULES} are the most")
    return [Fields(path, each) for each in described]


def read_modules(directory: Path) -> list[Any]:
    """Returns the modules in their order, the first as the name of its class; none without modules.json. Raises
    FileError."""
    path, listed = directory / MODULES, _listed(directory)
    if not listed and not path.exists():
        return []
    modules = [module for each in listed for module in _module(directory, each)]
    kinds = [type(module) for module in modules]
    heads = [kind for kind in kinds if kind in (PoolingModule, SpladeModule, LogitScoreModule)]
    if kinds[:1] != [str] or len(heads) > 1 or (heads and kinds[1] is not heads[0]):
        raise FileError(path, "its modules are no Transformer, then at most one of Pooling, SpladePooling and "
                              "LogitScore, then what follows it")
    if len(kinds) > 1 and heads != [PoolingModule] and kinds[1:] != heads:
        raise FileError(path, "it has Dense or Normalize without a Pooling before them")
    return modules


def _module(directory: Path, described: Fields) -> Iterator[Any]:
    """Yields the module, where it has an effect: the first of all as its name."""
    kind = described.text("type").rpartition(".")[2]
    place = _place(described)
    folder = directory / place
    if kind in ("Transformer", "MLMTransformer"):
        if place.parts:
            raise described.error("path", "an empty one, for the transformer's files have to lie beside this one")
        yield kind
    elif kind in READERS:
        yield READERS[kind](folder)
    elif kind != "Dropout":              # which does nothing where nothing is trained
        raise described.error("type", f"a module of sentence-transformers that is computed: Transformer, Dropout, "
                                      f"{', '.join(READERS)}")


def _place(described: Fields) -> PurePosixPath:
    place = PurePosixPath(described.text("path", ""))
    if ".." in place.parts or place.is_absolute():
        raise described.error("path", "a folder below the model's")
    return place


def _pooling(folder: Path) -> PoolingModule:
    fields = _needed(folder / "config.json")
    poolings = fields.get("pooling_mode")
    if poolings is None:
        flags = [name for name, flag in OLD_FLAGS.items() if fields.switch(flag, False)]
        poolings = flags or ["mean"]
    poolings = [poolings] if isinstance(poolings, str) else poolings
    if not isinstance(poolings, list) or not poolings or not all(each in POOLINGS for each in poolings):
        raise fields.error("pooling_mode", f"one or several of {', '.join(POOLINGS)}")
    return PoolingModule(tuple(poolings), fields.switch("include_prompt", True))


def _dense(folder: Path) -> DenseModule:
    fields = _needed(folder / "config.json")
    for key in ("module_input_name", "module_output_name"):
        if fields.get(key, "sentence_embedding") not in (None, "sentence_embedding"):
            raise fields.error(key, "sentence_embedding, the only one that is computed")
    if fields.switch("use_residual", False):
        raise fields.error("use_residual", "false, the only one that is computed")
    activation = fields.text("activation_function", "torch.nn.modules.activation.Tanh")
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.") or name not in ACTIVATIONS:
        raise fields.error("activation_function", f"a class of torch, one of {', '.join(ACTIVATIONS)}")
    if not (folder / WEIGHTS).is_file():
        found = ""
        if (folder / PICKLED).exists():
            found = (f"; weights in safetensors format are needed, not {PICKLED}: `penstock convert {folder} OUT` "
                     f"makes OUT/{WEIGHTS} of it, to be moved there")
        raise FileError(folder / WEIGHTS, f"it is missing{found}")
    return DenseModule(folder, fields.integer("in_features", least=1), fields.integer("out_features", least=1),
                       fields.switch("bias", True), ACTIVATIONS[name])


def _splade(folder: Path) -> SpladeModule:
    fields = read_fields(folder / "config.json") or Fields(folder, {})
    strategy, activation = fields.text("pooling_strategy", "max"), fields.text("activation_function", "relu")
    if strategy not in ("max", "sum"):
        raise fields.error("pooling_strategy", "max or sum")
    if activation not in ("relu", "log1p_relu"):
        raise fields.error("activation_function", "relu or log1p_relu")
    return SpladeModule(strategy == "sum", activation == "log1p_relu")


def _logit_score(folder: Path) -> LogitScoreModule:
    fields = _needed(folder / "config.json")
    other = None if fields.get("false_token_id") is None else fields.integer("false_token_id")
    return LogitScoreModule(fields.integer("true_token_id"), other)


def _normalize(folder: Path) -> NormalizeModule:
    fields = read_fields(folder / "config.json")
    if fields is not None and fields.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise fields.error("module_input_name", "sentence_embedding, the only one that is computed")
    return NormalizeModule()


READERS = {"Pooling": _pooling, "Dense": _dense, "Normalize": _normalize, "SpladePooling": _splade,
           "LogitScore": _logit_score}


def _needed(path: Path) -> Fields:
    fields = read_fields(path)
    if fields is None:
        raise FileError(path, f"it is missing, and {MODULES} names its folder")
    return fields


def read_fields(path: Path, most: int = MAX_BYTES, max_values: int | None = MAX_VALUES) -> Fields | None:
    """Returns the keys of a file; None if there is no such file. Raises FileError for one that can't be read."""
    if not path.exists():
        return None
    try:
        return Fields(path, parse_object(read_regular(path, most), max_values))
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise FileError(path, str(error)) from error
