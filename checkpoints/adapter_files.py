"""The two files of an adapter (LoRA), as PEFT saves them: opened and bounded, whatever they are."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from penstock.system.fields import FileError
from penstock.system.json_objects import parse_object
from penstock.system.regular_files import open_regular, read_regular, size_of
from penstock.system.safetensors_header import HeaderError, TensorPlace, parse_header

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
MAX_CONFIG_BYTES, MAX_CONFIG_VALUES = 1 << 20, 1 << 16
MAX_HEADER_BYTES, MAX_HEADER_VALUES = 8 << 20, 1 << 18
"""Of thousands of matrices, which have some ten values each; in the router all streams wait while Python reads them."""
MAX_SHOWN = 80
"""The characters of a value in a message."""

REFUSED = {
    "use_dora": "the magnitudes of DoRA are not served",
    "modules_to_save": "modules that were trained whole are not served; merge the adapter into the model",
    "lora_bias": "biases of adapters are not served",
    "trainable_token_indices": "tokens that were trained are not served",
    "layer_replication": "layers that are run several times are not served",
    "alora_invocation_tokens": "adapters that begin within a prompt (aLoRA) are not served",
    "target_parameters": "adapters of bare parameters are not served",
    "use_qalora": "the grouped inputs of QALoRA are not served",
    "use_bdlora": "the blocks of BD-LoRA are not served",
    "arrow_config": "adapters that are chosen token by token (Arrow) are not served",
    "kasa_config": "the singular values of KaSA are not served",
    "monteclora_config": "the samples of Monteclora are not served"}
INITIAL = (None, True, False, "gaussian", "eva", "orthogonal", "mica")
"""How the matrices began, where the base's weights stayed what they were."""


def check(folder: Path) -> None:
    """Raises FileError if a file is missing or damaged, or the configuration is of an adapter that can't be served."""
    read_config(folder)
    with opened_tensors(folder):
        pass


def read_config(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Returns the configuration and its SHA-256, with which the digest of the adapter begins: that of the tensors' file
    follows. Raises FileError for a file that can't be read, and for keys that can't be served."""
    path = folder / CONFIG
    try:
        content = read_regular(path, MAX_CONFIG_BYTES)
        values = parse_object(content, MAX_CONFIG_VALUES)
    except OSError as error:
        if not os.path.isdir(folder):
            raise FileError(folder, "it must be a directory on the server") from error
        raise FileError(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise FileError(path, str(error)) from error
    _refuse(path, values)
    return values, hashlib.sha256(content).digest()


def _refuse(path: Path, values: dict[str, Any]) -> None:
    """Raises FileError for what would change what the adapter computes, and is not served."""
    if values.get("peft_type") != "LORA":
        raise FileError(path, f"peft_type is {shown(values.get('peft_type'))}, only LORA is served")
    if values.get("bias", "none") not in (None, "none"):
        raise FileError(path, f"bias is {shown(values['bias'])}, only none is served: biases stay the base's")
    if values.get("init_lora_weights", True) not in INITIAL:
        raise FileError(path, f"init_lora_weights is {shown(values['init_lora_weights'])}: such an adapter belongs to "
                              "other weights than the base's; PEFT's save_pretrained converts it with "
                              "path_initial_model_for_weight_conversion")
    for key, reason in REFUSED.items():
        if values.get(key):
            raise FileError(path, f"{key} is {shown(values[key])}: {reason}")


def shown(value: object) -> str:
    """Returns a value as messages show it."""
    return f"{value!r:.{MAX_SHOWN}}"


@contextmanager
def opened_tensors(folder: Path) -> Iterator[tuple[BinaryIO, dict[str, TensorPlace]]]:
    """Opens the tensors' file at its first byte, and finds the places of the tensors. Raises FileError for a file that
    is missing, damaged or cut short, also where the block fails to read it."""
    path = folder / TENSORS
    try:
        with open_regular(path) as file:
            places = parse_header(file, size_of(file), MAX_HEADER_BYTES, MAX_HEADER_VALUES)
            if not places:
                raise FileError(path, "it has no tensors")
            file.seek(0)
            yield file, places
    except FileNotFoundError as error:
        raise FileError(path, "there is no such file; " + (
            "PEFT's save_pretrained makes it of adapter_model.bin with safe_serialization=True"
            if (folder / "adapter_model.bin").exists() else "adapters in other formats are not read")) from error
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from error
    except HeaderError as error:
        raise FileError(path, str(error)) from error
