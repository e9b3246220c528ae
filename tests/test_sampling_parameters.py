"""A sampling parameter is one row of the kernels' table, a field of the wire, and one of what the router sends."""

import dataclasses
import re
import subprocess
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf.descriptor import FieldDescriptor

from penstock.contract import wire
from penstock.contract.initial_state import InitialState
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.kernels import build, native
from penstock.kernels.sample.parameters import COLUMNS, PARAMETERS, RowParameters
from penstock.protos import shard_pb2
from penstock.shard.serving.checks import check_row

WIRE_TYPES = {torch.bool: FieldDescriptor.TYPE_BOOL, torch.float32: FieldDescriptor.TYPE_FLOAT,
              torch.int64: FieldDescriptor.TYPE_UINT32, torch.uint64: FieldDescriptor.TYPE_UINT64}
C_TYPES = {torch.bool: "const uint8_t*", torch.float32: "const float*", torch.int64: "const int64_t*"}


def fields_of(dataclass: type) -> dict[str, Any]:
    return {each.name: each.default for each in dataclasses.fields(dataclass)}


def test_the_wire_has_every_parameter_in_its_type() -> None:
    on_wire = shard_pb2.Sampling.DESCRIPTOR.fields_by_name
    assert {each.name: on_wire[each.name].type for each in PARAMETERS} == {
        each.name: WIRE_TYPES[each.dtype] for each in PARAMETERS}


def test_the_wire_and_the_contract_have_the_same_fields() -> None:
    assert fields_of(Sampling).keys() == {field.name for field in shard_pb2.Sampling.DESCRIPTOR.fields}


def test_the_contract_and_the_kernels_switch_the_same_off() -> None:
    assert {each.name: fields_of(Sampling)[each.name] for each in PARAMETERS} == {
        each.name: each.off for each in PARAMETERS}


def test_values_that_switch_off_and_on_are_within_the_bounds() -> None:
    for each in PARAMETERS:
        assert each.off != each.on
        assert type(each.off) is type(each.on)
        assert each.bound is None or (each.bound.holds(each.off) and each.bound.holds(each.on)), each.name


APART = ("do_sample", "of_logprobs")
"""They do not go together."""
IDS = ("bias_ids", "banned_ids", "allowed_ids", "bad_word_ids")


@pytest.mark.parametrize("absent", APART)
def test_what_the_router_says_is_what_the_shard_hears(absent: str) -> None:
    said = Sampling(
        **{each.name: each.on for each in PARAMETERS if each.name != absent}, watermark=True, bias_ids=(70_000, 3),
        bias_values=(0.5, -100.0), banned_ids=(2, 5), min_tokens=7, raw_logprobs=True, allowed_ids=(9, 8),
        bad_word_ids=(4, 70_000, 4), bad_word_lengths=(2, 1))
    order = wire.encode_plan(Plan(0, (Row(0, 0, (5,), initial_state=InitialState(said, 1)),)))
    (row,) = wire.decode_plan(shard_pb2.Order.FromString(order.SerializeToString()).plan, 0, check_row).rows
    assert row.initial_state is not None
    heard = row.initial_state.sampling
    for name in fields_of(Sampling):
        value = getattr(said, name)
        if name in IDS:
            assert tuple(getattr(heard, name)) == value
            continue
        assert getattr(heard, name) == (np.float32(value) if isinstance(value, float) else value), name
        assert (value != fields_of(Sampling)[name]) == (name != absent), f"{name} is off: nothing is seen of it"


@pytest.mark.skipif(not build.can_build(), reason="the C++ kernels are for x86-64 Linux")
def test_the_compiled_kernel_reads_every_column_in_its_type() -> None:
    found = re.search(r"struct SampleBatch \{([^}]*)\}", (build.SOURCES / "structures.h").read_text())
    assert found
    types = {name: kind for kind, name in re.findall(r"^\s*(.+?) ?(\w+);", found[1], re.MULTILINE)}
    assert {name: types.get(name) for name in COLUMNS} == {name: C_TYPES[dtype] for name, dtype in COLUMNS.items()}


@pytest.mark.skipif(not build.can_build(), reason="the C++ kernels are for x86-64 Linux")
@pytest.mark.parametrize("name", ["SampleBatch"])
def test_the_compiler_lays_out_a_structure_as_python_does(name: str) -> None:
    """Field by field, in the same order, and no byte more."""
    structure = native.structure(name)
    offsets = {field: getattr(structure, field).offset for field, _ in structure._fields_}
    asserts = [f"static_assert(offsetof({name}, {field}) == {offset});" for field, offset in offsets.items()]
    code = "\n".join(['#include <cstddef>', '#include "structures.h"', *asserts])
    compiled = subprocess.run(
        [*build.compiler(), "-std=c++20", "-fsyntax-only", *build.PATHS["avx2"], "-I", build.SOURCES, "-x", "c++", "-"],
        input=code, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr


def test_the_contract_has_the_table_and_what_the_shard_does_itself() -> None:
    own = fields_of(Sampling).keys() - fields_of(RowParameters).keys()
    assert own == {
        "watermark", "bias_ids", "bias_values", "banned_ids", "min_tokens", "raw_logprobs", "allowed_ids",
        "bad_word_ids", "bad_word_lengths"}
