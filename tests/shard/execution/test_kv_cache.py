"""How many blocks a shard has, and what it says when they are too few."""

import logging
import re

import pytest
import torch

from penstock.kernels import dispatch
from penstock.shard.execution import kv_cache
from penstock.shard.execution.kv_cache import KvMemoryError, KvShape, cache_dtype, check_kv_memory, num_blocks

SHAPE = KvShape(num_layers=2, num_kv_heads=2, head_dim=32, block_size=16, dtype=torch.float32)


def test_the_bytes_of_a_block() -> None:
    assert SHAPE.block_bytes == 2 * 16 * 2 * 32 * 2 * 4
    caches = SHAPE.allocate(5)
    assert len(caches) == 2
    assert sum(cache.data.nbytes for cache in caches) == 5 * SHAPE.block_bytes


def test_what_fits() -> None:
    assert num_blocks(SHAPE, 100 * SHAPE.block_bytes - 1, context_length=256, world_size=2) == 99


def test_the_default_is_a_quarter_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    for world_size, expected in ((1, 100), (2, 50)):
        available = world_size * kv_cache.GROWTH + 400 * SHAPE.block_bytes
        monkeypatch.setattr(kv_cache, "available_memory", lambda available=available: available)
        assert num_blocks(SHAPE, None, context_length=256, world_size=world_size) == expected
    monkeypatch.setattr(kv_cache, "available_memory", lambda: 1 << 50)
    assert num_blocks(SHAPE, None, context_length=256, world_size=1) == kv_cache.DEFAULT_MAX_BLOCKS


@pytest.mark.parametrize(("free", "expected"), [(20, 20), (40, 40), (80, 40), (160, 40)])
def test_little_memory_holds_one_context_and_leaves_room_to_grow(
    monkeypatch: pytest.MonkeyPatch, free: int, expected: int,
) -> None:
    monkeypatch.setattr(kv_cache, "available_memory", lambda: 4 * free * SHAPE.block_bytes)
    assert num_blocks(SHAPE, None, context_length=40 * SHAPE.block_size, world_size=1) == expected


def test_a_shard_that_takes_anothers_place_has_as_much_if_that_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    available = kv_cache.GROWTH * 2 + 400 * SHAPE.block_bytes
    monkeypatch.setattr(kv_cache, "available_memory", lambda: available)
    monkeypatch.setattr(kv_cache, "HEADROOM", available - 400 * SHAPE.block_bytes)
    quarter = (available - kv_cache.GROWTH) // 4 // SHAPE.block_bytes
    for before, expected in ((300, 300), (400, 400), (401, 401), (5000, quarter)):
        assert num_blocks(SHAPE, None, context_length=256, world_size=1, before=before) == expected
    assert num_blocks(SHAPE, 5000 * SHAPE.block_bytes, 256, world_size=2, before=5000) == 50


def test_more_than_there_is_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_cache, "available_memory", lambda: 2 * kv_cache.HEADROOM + 400 * SHAPE.block_bytes)
    check_kv_memory(200 * SHAPE.block_bytes, world_size=2)
    with pytest.raises(KvMemoryError, match=f"2 times {200 * SHAPE.block_bytes + 1} bytes are more than the 6553600"):
        check_kv_memory(200 * SHAPE.block_bytes + 1, world_size=2)
    message = ("--kv-memory: 2 times 1099511627776 bytes are more than the 6553600 available besides 134217728 "
               "for steps and requests; leave it out")
    with pytest.raises(KvMemoryError, match=message):
        check_kv_memory(1 << 40, world_size=2)


@pytest.mark.parametrize("context_length", [256, 4096])
def test_too_little_is_an_error(context_length: int) -> None:
    assert num_blocks(SHAPE, 16 * SHAPE.block_bytes, context_length, world_size=1) == 16
    message = re.escape(
        "262143 bytes of KV memory hold 15 blocks of 16 tokens and 16 are the least: 1 bytes are missing, "
        "set --kv-memory to 262144 or more")
    with pytest.raises(KvMemoryError, match=message):
        num_blocks(SHAPE, 16 * SHAPE.block_bytes - 1, context_length, world_size=1)


def test_a_short_context_needs_no_more_than_itself() -> None:
    assert num_blocks(SHAPE, SHAPE.block_bytes, context_length=16, world_size=1) == 1


def test_less_than_one_context_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        num_blocks(SHAPE, 20 * SHAPE.block_bytes, context_length=320, world_size=1)
        assert caplog.messages == []
        num_blocks(SHAPE, 20 * SHAPE.block_bytes, context_length=321, world_size=1)
    assert caplog.messages == [
        "327680 bytes of KV memory hold 320 tokens, less than the context of 321: set --kv-memory higher"]


@pytest.mark.parametrize("kernel_set", ["cpu", "gpu", "reference"])
def test_number_formats(kernel_set: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor's compiled kernels have but one of 8 bits, and name it."""
    monkeypatch.setattr(dispatch, "kernel_set", lambda: kernel_set)
    assert cache_dtype(None) is None
    assert cache_dtype("int8") == torch.int8
    for name, dtype in (("fp8_e4m3fn", torch.float8_e4m3fn), ("fp8_e5m2", torch.float8_e5m2)):
        if kernel_set != "cpu":
            assert cache_dtype(name) == dtype
        else:
            with pytest.raises(ValueError, match=f"--kv-cache-dtype {name}: .* int8, which takes as little memory"):
                cache_dtype(name)
