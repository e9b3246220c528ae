"""Records of requests in the database of files and batches."""

from collections.abc import Sequence

from penstock.router.journal.entry import Written
from penstock.router.store.request_log import RequestLog


class InDatabase:
    """Adds rows to a table of the store's database."""

    def __init__(self, log: RequestLog) -> None:
        self._log = log

    async def write(self, records: Sequence[Written]) -> None:
        await self._log.add([
            {"id": record.id, "at": record.at, "route": record.route, "model": record.model, "api_key": record.key,
             "status": record.status, "record": record.line.decode()} for record in records])
