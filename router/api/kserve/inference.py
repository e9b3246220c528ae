"""A request for inference, by whichever way it came: tensors and parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from penstock.router.api.kserve.models import Named
from penstock.router.api.kserve.tensors import BYTES, Tensor, column, refused
from penstock.router.errors import EmptyText, ValidationError

TEXT, IDS, MASK, QUERY, TEXTS = "text_input", "input_ids", "attention_mask", "query", "texts"
SETTINGS = "sampling_parameters"
LARGEST_ID = (1 << 32) - 1
_INTEGERS = ("INT32", "INT64", "UINT32", "UINT64")


@dataclass(frozen=True, slots=True)
class Inference:
    """A request to a model. `outputs` names those that are asked for; without names they are the usual ones."""

    model: Named
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    outputs: Sequence[str] = ()

    def settings(self, tensors: Sequence[str]) -> dict[str, Any]:
        """Returns the settings of a request, by name: its parameters, over them those of the object of JSON that
        Triton's backend for vLLM takes as a tensor, and over them all other tensors but those of these names."""
        settings = dict(self.parameters)
        for name, tensor in self.inputs.items():
            if name == SETTINGS:
                settings |= _object(tensor)
        for name, tensor in self.inputs.items():
            if name not in (*tensors, SETTINGS):
                values = _row(tensor)
                settings[name] = values[0] if len(values) == 1 else values
        return settings

    def prompts(self) -> list[str | tuple[int, ...]]:
        """Returns the texts, or the token ids, that something is to be made of, and raises ValidationError if there are
        none, or both."""
        given = [name for name in (TEXT, IDS) if name in self.inputs]
        if len(given) != 1:
            raise ValidationError(f"`{TEXT}` or `{IDS}` must be among the inputs, and not both. Given: "
                                  f"{', '.join(f'`{name:.100}`' for name in self.inputs) or 'none'}")
        return [*self.texts(TEXT)] if given == [TEXT] else [*self._ids()]

    def texts(self, name: str) -> list[str]:
        """Returns the texts of an input, which has a row for each or is one row. Raises ValidationError."""
        tensor = self.inputs[name]
        if tensor.datatype != BYTES:
            raise _wrong(tensor, f"must have the datatype {BYTES}")
        if len(tensor.shape) > 2 or (len(tensor.shape) == 2 and tensor.shape[1] != 1):
            raise _wrong(tensor, "must have the shape [n] or [n, 1]")
        return [*tensor.values]

    def _ids(self) -> list[tuple[int, ...]]:
        tensor, mask = self.inputs[IDS], self.inputs.get(MASK)
        if not tensor.values:  # and any number of rows
            raise EmptyText(IDS)
        for each in (tensor, mask):
            if each is not None and (each.datatype not in _INTEGERS or len(each.shape) > 2):
                raise _wrong(each, f"must have one of the datatypes {', '.join(_INTEGERS)} and the shape [n] or [n, m]")
        for id in (min(tensor.values), max(tensor.values)):
            if not 0 <= id <= LARGEST_ID:
                raise _wrong(tensor, f"must have token ids >= 0 and <= {LARGEST_ID}. Given: {id}")
        if mask is None:
            return [tuple(row) for row in tensor.rows]
        if mask.shape != tensor.shape:
            raise _wrong(mask, f"must have the shape of `{IDS}`, {[*tensor.shape]}")
        return [tuple(id for id, is_there in zip(row, of_row, strict=True) if is_there)
                for row, of_row in zip(tensor.rows, mask.rows, strict=True)]


def of_text(model: Named, text: str, id: str = "", parameters: Mapping[str, Any] | None = None) -> Inference:
    """Returns a request that has one text, and parameters."""
    return Inference(model, id, parameters or {}, {TEXT: column(TEXT, BYTES, [text])})


@dataclass(frozen=True, slots=True)
class Inferred:
    """The tensors that answer a request, and HTTP's headers that tell of it."""

    tensors: Sequence[Tensor]
    headers: Mapping[str, str] = field(default_factory=dict)


def _wrong(tensor: Tensor, rule: str) -> ValidationError:
    return refused(tensor.name, tensor.datatype, tensor.shape, rule)


def _row(tensor: Tensor) -> list[Any]:
    """Returns the values of a setting, which is one row, or one for each text, where all are equal."""
    if len(tensor.shape) != 2 or not tensor.values:
        return [*tensor.values]
    first, *others = tensor.rows
    if any(row != first for row in others):
        raise _wrong(tensor, "must have equal rows, for a setting is that of all texts of a request")
    return [*first]


def _object(tensor: Tensor) -> dict[str, Any]:
    try:
        found = orjson.loads(tensor.values[0]) if tensor.datatype == BYTES and len(tensor.values) == 1 else None
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise _wrong(tensor, "must be one text, an object of JSON")
    return found


def asked_outputs(inference: Inference, usual: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """Returns the names of the outputs that are asked for, or the usual ones. Raises ValidationError."""
    for name in inference.outputs:
        if name not in known:
            raise ValidationError(f"`outputs` must have names of {', '.join(f'`{each}`' for each in known)}. "
                                  f"Given: `{name:.100}`")
    return inference.outputs or usual
