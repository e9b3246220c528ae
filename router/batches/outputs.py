"""The files of a batch's answers: the output, and that of the lines which have failed or have no answer."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from penstock.router.batches.answers import no_answer
from penstock.router.store.batch_leases import BatchLease
from penstock.router.store.files import Files, FileWriter
from penstock.router.store.patience import patiently
from penstock.router.store.records import BatchStatus, StoredBatch
from penstock.router.store.tables import COMPLETED, FAILED, WAITING

_PAGE = 50
"""How many answers are read at once, if they are short."""
_WHY = {
    BatchStatus.EXPIRED: ("batch_expired", "This request was not answered before the batch's completion window was "
                          "over."),
    BatchStatus.CANCELLED: ("batch_cancelled", "This request was not answered before the batch was cancelled."),
    BatchStatus.FAILED: ("batch_failed", "This request was not answered before the batch failed by a fault of the "
                         "server."),
}


class Outputs:
    """Writes the files of a batch that ends, in the order of the input's lines."""

    def __init__(self, files: Files, lease: BatchLease) -> None:
        self._files = files
        self._lease = lease

    async def end(self, status: BatchStatus, reasons: Sequence[dict[str, Any]] | None = None) -> StoredBatch:
        """Writes the files and ends the batch in this state, if it has failed for these reasons."""
        return await patiently(partial(self._end, status, reasons))

    async def _end(self, status: BatchStatus, reasons: Sequence[dict[str, Any]] | None) -> StoredBatch:
        async with self._files.writing() as output, self._files.writing() as errors:
            await self._copy(COMPLETED, output)
            await self._copy(FAILED, errors)
            if status in _WHY:
                await self._copy(WAITING, errors, *_WHY[status])
            return await self._lease.end(
                status, output if output.num_bytes else None, errors if errors.num_bytes else None, reasons)

    async def _copy(self, state: int, writer: FileWriter, code: str = "", message: str = "") -> None:
        """Writes the answers of all lines in a state, or for lines without one a reason."""
        last = 0
        while lines := await self._lease.answers(state, last, _PAGE):
            for number, custom_id, answer in lines:
                await writer.write(no_answer(custom_id, code, message) if answer is None else answer)
                last = number
            await self._lease.keep()
