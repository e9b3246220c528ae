"""What goes to a device and comes back: in one piece where the device is another, and where it lies otherwise."""

import numpy as np
import pytest
import torch

from penstock.kernels import dispatch
from penstock.shard.devices.device import ALIGNMENT, Device, lay_out, nanoseconds, pack, unpack

ARRAYS = [
    np.arange(5), np.array([True, False, True]), np.empty((0, 4), np.int32),
    np.arange(6, dtype=np.float32).reshape(2, 3), np.array([2**63 - 1, -(2**63)]),
    np.array([[-7], [2**31 - 1]], np.int32), np.empty(0, np.int64), np.array([np.nan, -np.inf, 1e-45], np.float32)]


def test_the_layout_is_aligned_and_without_overlap() -> None:
    offsets, length = lay_out(ARRAYS)
    ends = [offset + array.nbytes for offset, array in zip(offsets, ARRAYS, strict=True)]
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    assert all(end <= begin < end + ALIGNMENT for end, begin in zip(ends, [*offsets[1:], length], strict=True))
    assert lay_out([]) == ([], 0)


def test_what_is_unpacked_is_what_was_packed() -> None:
    offsets, length = lay_out(ARRAYS)
    piece = np.full(length, 0xAA, np.uint8)
    pack(ARRAYS, offsets, piece)
    there = torch.from_numpy(piece)
    for array, tensor in zip(ARRAYS, unpack(there, ARRAYS, offsets), strict=True):
        assert tensor.is_contiguous()
        assert tensor.untyped_storage().data_ptr() == there.data_ptr()
        assert tensor.numpy().dtype == array.dtype
        np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("packs", [False, True])
def test_up_and_down_again(packs: bool) -> None:
    device = Device(dispatch.device(), packs)
    with torch.inference_mode():
        tensors = device.upload(ARRAYS)
    assert {tensor.device.type for tensor in tensors} == {dispatch.device().type}
    for array, tensor in zip(ARRAYS, device.download(tensors).wait(), strict=True):
        assert tensor.numpy().dtype == array.dtype
        np.testing.assert_array_equal(tensor.numpy(), array)
    assert device.upload([]) == []
    assert device.download([]).wait() == []


def test_a_processor_reads_arrays_where_they_lie() -> None:
    array = np.arange(3)
    (tensor,) = Device(torch.device("cpu")).upload([array])
    assert tensor.data_ptr() == array.ctypes.data


def test_marks_are_apart_by_what_lies_between_them() -> None:
    device = Device(dispatch.device())
    begin = device.mark()
    x = torch.ones(300, 300, device=device.device) @ torch.ones(300, 300, device=device.device)
    end = device.mark()
    device.download([x]).wait()
    assert nanoseconds(begin, end) > 0
