"""Several places that are told of each request."""

from collections.abc import Sequence

from penstock.router.generation.request_record import Journal, RequestRecord


class Several:
    """Gives each record to several journals."""

    def __init__(self, journals: Sequence[Journal]) -> None:
        self._journals = journals
        self.keeps_texts = any(each.keeps_texts for each in journals)

    def write(self, record: RequestRecord, status: int, path: str | None = None) -> None:
        """Gives them the record of a request that has ended."""
        for each in self._journals:
            each.write(record, status, path)

    async def close(self) -> None:
        """Ends each of them, once it has kept its records."""
        for each in self._journals:
            await each.close()
