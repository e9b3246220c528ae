"""The adapters that requests may name."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.router.adapters import files
from penstock.router.adapters.files import AdapterFiles, TooManyWeights
from penstock.router.adapters.numbers import Numbers
from penstock.router.adapters.reading import Readers
from penstock.router.adapters.source import AdapterSource
from penstock.router.errors import AdapterNotFound, GenerationError, InvalidAdapter, ValidationError
from penstock.system.fields import FileError

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Of a weight, by the model's dtype."""
MAX_NAME = 256
MAX_KNOWN = 100_000
"""How many names there may be at once."""
MAX_REMOVED = 10_000
"""How many names that were removed are remembered."""
LOOK_SECONDS = 0.5
"""For how long a request waits to see whether its adapter's files were changed."""
MAX_NAMED = 10
"""How many names a message tells."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter whose files were read, with the number by which the shards know it: see `Numbers`."""

    number: int
    name: str
    path: Path
    digest: str
    num_bytes: int
    """Of its weights on a shard, in the model's dtype; its tables take a few per cent more."""

    @property
    def identity(self) -> bytes:
        """Names it to the prefix cache. Two names of equal files share nothing, as two adapters would not."""
        return f"{self.name}\n{self.digest}".encode("utf-8", "surrogatepass")


class Registry:
    """Knows adapters by name, thousands if need be; their files are read when they are first used, and again when they
    are used after they were changed.

    `model_id` and `dtype` are the model's, and `max_bytes` is the most that an adapter may have. `read` takes an
    adapter's folder and the most weights that it may have; it may take its time. What is kept of names that are gone
    has a bound.
    """

    def __init__(
        self, sources: Iterable[AdapterSource] = (), model_id: str = "", dtype: str = "float32", max_bytes: int = 0,
        read: Callable[[Path, int], AdapterFiles] = files.read,
    ) -> None:
        self._model_id = model_id
        self._sources = {source.name: source for source in sources}
        self._bytes_of_weight = BYTES[dtype]
        self.max_bytes = max_bytes
        self._read = read
        self.readers = Readers()
        self._lookers = Readers(LOOK_SECONDS)
        self._reading: dict[str, asyncio.Task[Adapter]] = {}
        """By name; one that is done has the adapter."""
        self._stamps: dict[str, tuple[tuple[int, ...], ...]] = {}
        """By name, those of the files when they were read."""
        self._removed: dict[str, None] = {}
        """The names that were removed last, and not added again."""
        self._numbers = Numbers()
        self.followers: list[Callable[[Adapter | None], None]] = []
        """Called when names were added or removed; with the adapter that was removed, if its files were read."""

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[AdapterSource]:
        return iter(self._sources.values())

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def removed(self) -> tuple[str, ...]:
        """The names that were removed last, and not added again."""
        return tuple(self._removed)

    def recall(self, added: Iterable[AdapterSource], removed: Iterable[str]) -> None:
        """Takes over the adapters that were added to and removed from the registry of a process before this one. Files
        that are no good any more are found when they are used."""
        for name in removed:
            self._note_removed(name)
            if name in self:
                self._forget(name)
        for source in added:
            if source.name not in self._removed:
                self._sources.setdefault(source.name, source)

    def own(self, found: Adapter) -> Adapter:
        """Returns an adapter that was found by the registry of a process before this one, maybe of a name that was
        removed since, with a number of this one. Its files are known to be good only once it is loaded."""
        if found.name not in self:
            self._note_removed(found.name)
        return replace(found, number=self._numbers.of(found.name, found.digest))

    def named(self, model: str | None) -> str | None:
        """Returns the name of the adapter that a request of OpenAI's routes names as its model; None if that is any
        other name, which stands for the model itself. Raises AdapterNotFound for the name of one that was removed: the
        model itself would give another answer."""
        if model in self._removed:
            raise AdapterNotFound(f"The lora adapter '{model:.64}' was unloaded.", "model")
        return model if model in self._sources else None

    def check(self, name: str | None) -> None:
        """Raises ValidationError, which tells some of the known names, if there is no adapter of this name."""
        if name is None or name in self._sources:
            return
        if not self._sources:
            raise ValidationError("`adapter_id` is not supported: this server has no adapters")
        names = [f"`{each:.64}`" for each, _ in zip(self._sources, range(MAX_NAMED), strict=False)]
        more = f" and {len(self) - MAX_NAMED} more" * (len(self) > MAX_NAMED)
        raise ValidationError(f"`adapter_id` must be one of {', '.join(names)}{more}. Given: `{name:.64}`")

    async def get(self, name: str) -> Adapter:
        """Returns the adapter of a name; reads its files, if that was not done since they were changed, in a thread.

        Raises ValidationError if there is none of this name or it is too large, GenerationError if its files can't be
        used.
        """
        self.check(name)
        try:
            adapter = await self._load(self._sources[name])
        except FileError as error:
            raise GenerationError(f"adapter `{name}`: {error}") from error
        except TooManyWeights as error:
            raise ValidationError(self._too_large(name, error)) from error
        return adapter

    async def add(self, source: AdapterSource) -> None:
        """Adds an adapter whose files are good. Raises InvalidAdapter if they are not, or the name can't be taken."""
        if source.name in self:
            raise InvalidAdapter(f"The lora adapter '{source.name:.64}' has already been loaded.", "lora_name")
        if fault := fault_of_name(source.name, self._model_id):
            raise InvalidAdapter(f"`lora_name` {fault}")
        if len(self) >= MAX_KNOWN:
            raise InvalidAdapter(f"there are {len(self)} lora adapters, at most {MAX_KNOWN} can be known: unload some")
        self._sources[source.name] = source
        try:
            await self._load(source)
        except BaseException as error:
            if self._sources.get(source.name) is source:
                self._forget(source.name)
            if isinstance(error, FileError):
                raise InvalidAdapter(f"`lora_path`: {error}") from error
            if isinstance(error, TooManyWeights):
                raise InvalidAdapter(self._too_large(source.name, error)) from error
            raise
        else:
            if self._sources.get(source.name) is source:
                self._removed.pop(source.name, None)
        finally:
            self._tell(None)

    async def remove(self, name: str) -> None:
        """Removes a name, which new requests can't use any more. Raises AdapterNotFound."""
        if name not in self:
            raise AdapterNotFound(f"The lora adapter '{name:.64}' cannot be found.", "lora_name")
        self._note_removed(name)
        self._tell(self._forget(name))

    def _tell(self, removed: Adapter | None) -> None:
        for follower in self.followers:
            follower(removed)

    def _note_removed(self, name: str) -> None:
        self._removed[name] = None
        if len(self._removed) > MAX_REMOVED:
            oldest = next(iter(self._removed))
            del self._removed[oldest]
            self._forget_numbers(oldest)

    def _forget_numbers(self, name: str) -> None:
        """Lets go of the numbers of a name that neither is known nor was removed of late."""
        if name not in self and name not in self._removed:
            self._numbers.forget(name)

    def read_again(self, adapter: Adapter) -> None:
        """Has the files of an adapter that shards refuse read anew when it is next used: they may have changed."""
        reading = self._reading.get(adapter.name)
        if reading is not None and _result(reading) is adapter:
            self._drop(adapter.name, reading)

    def _forget(self, name: str) -> Adapter | None:
        del self._sources[name]
        self._stamps.pop(name, None)
        reading = self._reading.pop(name, None)
        return None if reading is None else _result(reading)

    async def _load(self, source: AdapterSource) -> Adapter:
        """Reads an adapter's files once, for all who wait for them, of whom some may leave."""
        reading = self._reading.get(source.name)
        if reading is not None and await self._has_changed(source, reading):
            self._drop(source.name, reading)
            reading = self._reading.get(source.name)  # others may have seen it, too
        if reading is None:
            reading = self._reading[source.name] = asyncio.create_task(self._read_files(source))
            reading.add_done_callback(_result)  # or asyncio complains of an error that nobody waited for
        try:
            return await asyncio.shield(reading)
        except Exception:  # the files may be mended
            self._drop(source.name, reading)
            raise

    async def _has_changed(self, source: AdapterSource, reading: asyncio.Task[Adapter]) -> bool:
        """Tells whether files that were read are others now. Those that are gone may be loaded still, and so may those
        on a disk that does not answer."""
        if not reading.done():
            return False
        try:
            now = await self._lookers.read(source.path, lambda: files.stamp(source.path))
        except FileError:
            return False
        return source.name in self and all(now) and now != self._stamps.get(source.name)

    def _drop(self, name: str, reading: asyncio.Task[Adapter]) -> None:
        if self._reading.get(name) is reading:
            del self._reading[name]

    async def _read_files(self, source: AdapterSource) -> Adapter:
        most = self.max_bytes // self._bytes_of_weight
        stamp, found = await self.readers.read(
            source.path, lambda: (files.stamp(source.path), self._read(source.path, most)))
        if source.name in self:
            self._stamps[source.name] = stamp
        number = self._numbers.of(source.name, found.digest)
        self._forget_numbers(source.name)  # if whoever added it has left
        return Adapter(number, source.name, source.path, found.digest, found.num_weights * self._bytes_of_weight)

    def _too_large(self, name: str, error: TooManyWeights) -> str:
        num_bytes = error.num_weights * self._bytes_of_weight
        return (f"the adapter `{name}` needs {num_bytes} bytes, and all adapters together may have "
                f"`max_adapter_memory` = {self.max_bytes}")


def fault_of_name(name: str, model_id: str) -> str | None:
    """Returns the fault of an adapter's name, or None if it is good."""
    if name in ("tgi", model_id):
        return f"must not be {name}, by which OpenAI's routes know the model itself"
    if not name.strip() or name.strip() != name or not name.isprintable():
        return "must have printable characters, and no space at its ends"
    if len(name) > MAX_NAME:
        return f"must have at most {MAX_NAME} characters. Given: {len(name)}"
    return None


def _result(reading: asyncio.Task[Adapter]) -> Adapter | None:
    """Returns the adapter whose files were read; None if they are still being read, or could not be."""
    is_read = reading.done() and not reading.cancelled() and reading.exception() is None
    return reading.result() if is_read else None
