"""The check of a batch's input: each line is a request, and none has the `custom_id` of another."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from penstock.router.api.whole_answers import EMBEDDINGS
from penstock.router.batches.lines import Line, LineError, most_sequences, raw_lines, read_line, repeated
from penstock.router.limits import Limits
from penstock.router.store.batch_leases import BatchLease
from penstock.router.store.files import Files
from penstock.router.store.patience import parts_of, patiently
from penstock.router.store.records import StoredBatch

MAX_LINES = 50_000
MAX_TEXTS = 50_000
"""How many texts the lines of a file may ask vectors of, all together."""
MAX_ERRORS = 100
"""How many errors of a file are told."""
_STORED_LINES = 500
"""How many lines are stored at once."""
_MAX_MODEL = 200
"""How many characters of a model's name are kept."""


class Checking:
    """Reads a batch's input once, and stores the numbers of its lines. Little of the file is in memory at any time."""

    def __init__(self, files: Files, lease: BatchLease, batch: StoredBatch, limits: Limits) -> None:
        self._files = files
        self._lease = lease
        self._batch = batch
        self._limits = limits
        self._total = 0
        self._num_texts = 0
        self._model: str | None = None
        self._errors: list[dict[str, Any]] = []
        self._group: list[tuple[int, str]] = []

    async def run(self) -> StoredBatch | None:
        """Checks the input. Returns the batch, which is in progress; None if it has failed."""
        lease = self._lease
        await patiently(lease.forget_lines)
        await self._read()
        if not self._total:
            self._errors.append(error_entry("empty_file", None, "the input file must have a request. Given: none"))
        if self._errors:
            await patiently(partial(lease.fail, self._errors[:MAX_ERRORS]))
            return None
        return await patiently(partial(lease.begin, self._total, self._model))

    async def _read(self) -> None:
        async for raw in raw_lines(self._parts(), self._limits.payload_limit):
            if self._total == MAX_LINES:
                self._errors.append(error_entry("too_many_lines", raw.number,
                                           f"the input file must have at most {MAX_LINES} requests. Given: more"))
                return
            self._total += 1
            try:
                line = read_line(raw, self._limits, self._batch.endpoint)
                self._count_texts(line)
                self._model = self._model or _named(line.body.get("model"))
                self._group.append((line.number, line.custom_id))
            except LineError as error:
                self._note(error)
            if len(self._group) == _STORED_LINES:
                await self._store()
            if len(self._errors) >= MAX_ERRORS:
                return
            await asyncio.sleep(0)  # others may have their turn between two lines
        await self._store()

    def _count_texts(self, line: Line) -> None:
        """Raises LineError for the first line of vectors whose texts are too many with those before it."""
        before = self._num_texts
        if line.url == EMBEDDINGS:
            self._num_texts += most_sequences(line.url, line.body)
        if before <= MAX_TEXTS < self._num_texts:
            raise LineError(line.number, f"the input file must ask for vectors of at most {MAX_TEXTS} texts. Given: "
                            "more", "too_many_inputs", "body.input")

    async def _parts(self) -> AsyncIterator[bytes]:
        """Yields the parts of the input, and renews the lease, however few lines there are to store."""
        async for part in parts_of(self._files, self._batch.input_file_id):
            await patiently(self._lease.keep)
            yield part

    async def _store(self) -> None:
        for found in await patiently(partial(self._lease.add_lines, self._group)):
            self._note(repeated(*found))
        self._group = []

    def _note(self, error: LineError) -> None:
        self._errors.append(error_entry(error.code, error.number, str(error), error.param))


def error_entry(code: str, line: int | None, message: str, param: str | None = None) -> dict[str, Any]:
    """Returns an error of a batch, as OpenAI has it."""
    return {"code": code, "line": line, "message": message, "param": param}


def _named(model: object) -> str | None:
    """Returns the model's name as far as it is one that a database keeps."""
    return model[:_MAX_MODEL].replace("\0", "") if isinstance(model, str) else None
