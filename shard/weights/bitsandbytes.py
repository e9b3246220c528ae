"""bitsandbytes' files: 8 bits by rows (Dettmers et al. 2022), and 4 bits by a table (Dettmers et al. 2023)."""

import json
from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.kernels.quantised_linear.activations import Activations
from penstock.kernels.quantised_linear.coded_weight import CodedWeight
from penstock.shard.weights.coded import CodedFormat
from penstock.shard.weights.format import LinearPart
from penstock.shard.weights.packed_codes import finite, high_then_low
from penstock.shard.weights.stored import Entry, StoredTensor

MOST = 127
INVERSE = 7.874015718698502e-3           # 1 / 127 as bitsandbytes has it


class BitsAndBytes8(CodedFormat):
    """NAME.weight int8 [N, K], and .SCB float32 [N], the largest number of each row."""

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        outputs = part.out_features
        return (
            StoredTensor(f"{linear}.weight", (outputs, part.in_features), (part.rows, part.columns), ("I8",)),
            StoredTensor(f"{linear}.SCB", (outputs,), (part.rows,), ("F32",)),
            StoredTensor(f"{linear}.weight_format", (), (), ("U8",), has_any_shape=True, is_optional=True))

    def decode(self, tensors: Sequence[Tensor], part: LinearPart) -> CodedWeight:
        numbers, largest, layout = tensors
        if layout.numel() > 1 or bool(layout.any()):
            raise ValueError(f"weight_format: {layout.tolist()!s:.200}, expected 0, by rows")
        return CodedWeight(numbers.contiguous().view(torch.uint8) ^ 128, 8, part.in_features,
                           (finite("SCB", largest) * INVERSE)[:, None], zero=128, start=part.columns.start)


class BitsAndBytes4(CodedFormat):
    """NAME.weight uint8 [N * K / 2, 1], the first of two inputs in the high bits; .weight.quant_map [16], the values of
    the codes; .weight.absmax [N * K / 64], the largest number of each block, and a JSON object in
    .weight.quant_state.bitsandbytes__KIND.

    Doubly quantised, absmax is uint8, and stands for a value of .weight.nested_quant_map [256] times one of
    .weight.nested_absmax for every 256 blocks, and an offset more.
    """

    def __init__(self, activations: Activations, kind: str, is_double: bool) -> None:
        """kind: nf4 or fp4."""
        super().__init__(activations)
        self.kind, self._is_double = kind, is_double

    def tensors(self, linear: str, part: LinearPart) -> tuple[StoredTensor, ...]:
        outputs, inputs = part.out_features, part.in_features
        rows = slice(part.rows.start * inputs // 2, part.rows.stop * inputs // 2)

        def whole(name: str, *dtypes: str) -> StoredTensor:
            return StoredTensor(f"{linear}.weight.{name}", (), (), dtypes, has_any_shape=True)

        nested = (whole("nested_absmax", "F32"), whole("nested_quant_map", "F32")) if self._is_double else ()
        return (
            StoredTensor(f"{linear}.weight", (outputs * inputs // 2, 1), (rows, slice(0, 1)), ("U8",)),
            whole(f"quant_state.bitsandbytes__{self.kind}", "U8"), whole("quant_map", "F32"),
            whole("absmax", "U8" if self._is_double else "F32"), *nested)

    def num_bytes(self, entry: Entry, dtype: torch.dtype) -> int:
        is_largest = entry.dtype in ("U8", "F32") and len(entry.shape) == 1
        return 4 * entry.num_elements if is_largest else super().num_bytes(entry, dtype)

    def decode(self, tensors: Sequence[Tensor], part: LinearPart) -> CodedWeight:
        packed, raw_state, table, largest, *nested = tensors
        state, inputs = _state(self.kind, raw_state), part.in_features
        block = _whole_number(self.kind, state, "blocksize")
        if inputs % block:
            raise ValueError(f"weight: blocks of {block} do not divide rows of {inputs} inputs")
        num_blocks = part.out_features * inputs // block
        if largest.numel() != num_blocks:
            raise ValueError(f"weight.absmax: {largest.numel()} numbers, expected {num_blocks}")
        if table.numel() != 16:
            raise ValueError(f"weight.quant_map: {table.numel()} numbers, expected 16")
        scales = _unnested(largest, nested, state, self.kind) if nested else largest
        scales = finite("weight.absmax", scales).view(part.out_features, -1)[part.rows].contiguous()
        codes = high_then_low(packed.reshape(-1, inputs // 2))
        return CodedWeight(codes, 4, block, scales, table=finite("weight.quant_map", table).flatten())


def _state(kind: str, raw: Tensor) -> dict[str, object]:
    try:
        state = json.loads(bytes(raw.flatten().tolist()))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"weight.quant_state.bitsandbytes__{kind}: no JSON: {error}") from error
    if not isinstance(state, dict):
        raise ValueError(f"weight.quant_state.bitsandbytes__{kind}: no JSON object")
    return state


def _whole_number(kind: str, state: dict[str, object], key: str) -> int:
    value = state.get(key)
    if not isinstance(value, int) or not 0 < value < 2**31:
        raise ValueError(f"weight.quant_state.bitsandbytes__{kind}: {key} {value!r:.200}, expected a whole number")
    return value


def _unnested(largest: Tensor, nested: Sequence[Tensor], state: dict[str, object], kind: str) -> Tensor:
    """Returns the largest numbers of blocks, float32, which were themselves quantised."""
    scales, table = nested
    block, offset = _whole_number(kind, state, "nested_blocksize"), state.get("nested_offset")
    if not isinstance(offset, float):
        raise ValueError(f"weight.quant_state.bitsandbytes__{kind}: nested_offset {offset!r:.200}, expected a number")
    if scales.numel() != -(-largest.numel() // block):
        raise ValueError(f"weight.nested_absmax: {scales.numel()} numbers, expected {-(-largest.numel() // block)}")
    if table.numel() != 256:
        raise ValueError(f"weight.nested_quant_map: {table.numel()} numbers, expected 256")
    of_blocks = scales.flatten().repeat_interleave(block)[: largest.numel()]
    return table.flatten()[largest.flatten().long()] * of_blocks + offset
