"""Names of adapters, and the numbers that they get."""

import asyncio
import threading
from pathlib import Path

import pytest

from penstock.router.adapters.files import AdapterFiles, read
from penstock.router.adapters.reading import Readers
from penstock.router.adapters.registry import Adapter, Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.errors import AdapterNotFound, GenerationError, InvalidAdapter, ValidationError
from tests.router.adapters.folders import write_adapter


def source(path: Path, name: str = "mine") -> AdapterSource:
    return AdapterSource(name, path, str(path))


async def test_files_are_read_when_first_used_and_once(tmp_path: Path) -> None:
    calls: list[Path] = []
    may_read = threading.Event()

    def slow(folder: Path, max_weights: int) -> AdapterFiles:
        calls.append(folder)
        may_read.wait(5)
        return read(folder, max_weights)

    write_adapter(tmp_path, rank=4, width=10)
    registry = Registry([source(tmp_path)], "model", "bfloat16", max_bytes=1000, read=slow)
    assert calls == []
    waits = [asyncio.create_task(registry.get("mine")) for _ in range(3)]
    await asyncio.sleep(0)
    waits[0].cancel()
    may_read.set()
    _, first, second = await asyncio.gather(*waits, return_exceptions=True)
    assert first is second is await registry.get("mine")
    assert not isinstance(first, BaseException)
    assert (first.name, first.path, first.num_bytes) == ("mine", tmp_path, 2 * 16 * 10 * 2)
    assert 0 < first.number < 2**32
    assert len(calls) == 1


async def test_a_number_belongs_to_a_name_and_its_files(tmp_path: Path) -> None:
    one, same, other = (write_adapter(tmp_path / name, fill=fill) for name, fill in (("1", 0), ("2", 0), ("3", 1)))
    registry = Registry([source(one, "one"), source(same, "same")], max_bytes=10_000)
    first, twin = await registry.get("one"), await registry.get("same")
    assert first.digest == twin.digest
    assert first.number != twin.number
    assert first.identity != twin.identity
    await registry.remove("one")
    await registry.add(source(other, "one"))
    changed = await registry.get("one")
    assert changed.number not in (first.number, twin.number)
    assert changed.identity != first.identity
    await registry.remove("one")
    await registry.add(source(one, "one"))
    assert (await registry.get("one")).number == first.number
    await registry.remove("one")
    await registry.add(source(write_adapter(one, lora_alpha=99), "one"))
    assert (await registry.get("one")).number not in (first.number, changed.number), "it answers otherwise"


async def test_unknown_names_are_refused_and_the_known_ones_told(tmp_path: Path) -> None:
    registry = Registry([source(tmp_path, f"n{number}") for number in range(12)])
    with pytest.raises(ValidationError, match=r"`adapter_id` must be one of `n0`, .*`n9` and 2 more. Given: `other`"):
        registry.check("other")
    with pytest.raises(ValidationError, match="must be one of"):
        await registry.get("other")
    with pytest.raises(ValidationError) as refusal:
        registry.check("x" * 100_000)
    assert len(str(refusal.value)) < 400
    registry.check("n11")
    registry.check(None)
    with pytest.raises(ValidationError, match="this server has no adapters"):
        Registry().check("any")


async def test_broken_files_fail_the_request_until_they_are_mended(tmp_path: Path) -> None:
    registry = Registry([source(tmp_path)], max_bytes=10_000)
    with pytest.raises(GenerationError, match=f"adapter `mine`: {tmp_path}/adapter_config.json: No such file"):
        await registry.get("mine")
    write_adapter(tmp_path)
    assert (await registry.get("mine")).name == "mine"


async def test_files_that_shards_refused_are_read_again(tmp_path: Path) -> None:
    calls: list[Path] = []

    def counted(folder: Path, max_weights: int) -> AdapterFiles:
        calls.append(folder)
        return read(folder, max_weights)

    registry = Registry([source(write_adapter(tmp_path))], max_bytes=10_000, read=counted)
    old = await registry.get("mine")
    registry.read_again(old)
    new = await registry.get("mine")
    assert (new.number, len(calls)) == (old.number, 2)
    registry.read_again(old)
    assert await registry.get("mine") is new


@pytest.mark.parametrize("change", [{"fill": 1}, {"lora_alpha": 99}], ids=["tensors", "config"])
async def test_the_next_request_has_files_that_were_changed(tmp_path: Path, change: dict[str, int]) -> None:
    registry = Registry([source(write_adapter(tmp_path))], max_bytes=10_000)
    old = await registry.get("mine")
    write_adapter(tmp_path, **change)
    new = await registry.get("mine")
    assert new.number != old.number
    assert new.digest != old.digest
    assert await registry.get("mine") is new


async def test_an_adapter_whose_files_are_gone_may_be_loaded_still(tmp_path: Path) -> None:
    registry = Registry([source(write_adapter(tmp_path))], max_bytes=10_000)
    old = await registry.get("mine")
    (tmp_path / "adapter_config.json").unlink()
    assert await registry.get("mine") is old


async def test_one_larger_than_all_the_memory_is_refused(tmp_path: Path) -> None:
    registry = Registry([source(write_adapter(tmp_path))], max_bytes=100)
    with pytest.raises(ValidationError, match=r"the adapter `mine` needs 2048 bytes, and .* = 100"):
        await registry.get("mine")
    with pytest.raises(InvalidAdapter, match="the adapter `new` needs 2048 bytes"):
        await registry.add(source(tmp_path, "new"))
    assert "new" not in registry


async def test_names_come_and_go(tmp_path: Path) -> None:
    registry = Registry(model_id="model", max_bytes=10_000)
    await registry.add(source(write_adapter(tmp_path)))
    assert [each.name for each in registry] == ["mine"]
    with pytest.raises(InvalidAdapter, match="'mine' has already been loaded"):
        await registry.add(source(tmp_path))
    for name, fault in (("tgi", "must not be tgi"), ("model", "must not be model"), ("", "printable"),
                        (" a", "printable"), ("a\n", "printable"), ("a" * 300, "at most 256 characters")):
        with pytest.raises(InvalidAdapter, match=f"`lora_name` .*{fault}"):
            await registry.add(source(tmp_path, name))
    with pytest.raises(InvalidAdapter, match=r"`lora_path`: .*/nowhere: it must be a directory on the server"):
        await registry.add(source(tmp_path / "nowhere", "new"))
    told: list[Adapter | None] = []
    registry.followers.append(told.append)
    await registry.remove("mine")
    assert [each and each.name for each in told] == ["mine"]
    with pytest.raises(AdapterNotFound, match="'mine' cannot be found"):
        await registry.remove("mine")
    assert len(registry) == 0


async def test_a_removed_name_is_not_taken_for_the_model(tmp_path: Path) -> None:
    write_adapter(tmp_path, rank=4, width=10)
    registry = Registry([source(tmp_path)], max_bytes=1 << 20)
    assert registry.named("mine") == "mine"
    assert registry.named("other") is None
    await registry.remove("mine")
    with pytest.raises(AdapterNotFound, match="'mine' was unloaded"):
        registry.named("mine")
    await registry.add(source(tmp_path))
    assert registry.named("mine") == "mine"


async def test_a_failed_addition_leaves_a_removed_name_removed(tmp_path: Path) -> None:
    registry = Registry([source(write_adapter(tmp_path / "good"))], max_bytes=10_000)
    await registry.remove("mine")
    with pytest.raises(InvalidAdapter):
        await registry.add(source(tmp_path / "none"))
    with pytest.raises(AdapterNotFound, match="'mine' was unloaded"):
        registry.named("mine")


async def test_files_that_do_not_come_stop_nothing_else(tmp_path: Path) -> None:
    """As of a disk that does not answer: the readers are busy, the loop's own threads are not."""
    never = threading.Event()

    def read_from(folder: Path, max_weights: int) -> AdapterFiles:
        if folder.name != "good":
            never.wait(20)
        return read(folder, max_weights)

    write_adapter(tmp_path / "good")
    registry = Registry([source(tmp_path / name, name) for name in ("one", "two", "good")], max_bytes=10_000,
                        read=read_from)
    registry.readers = Readers(seconds=0.2)
    results = await asyncio.gather(*map(registry.get, ("one", "two", "good")), return_exceptions=True)
    assert [f"{result}" for result in results] == [
        f"Request failed during generation: adapter `{name}`: {tmp_path / name}: it could not be read within 0.2 s"
        for name in ("one", "two", "good")]
    await asyncio.wait_for(asyncio.gather(*(asyncio.to_thread(str) for _ in range(50))), 1)
    never.set()
    await asyncio.sleep(0.05)
    assert (await registry.get("good")).name == "good"
