"""The store: files, batches, responses and totals of use in one database."""

import asyncio
import logging

from penstock.router.store.batches import Batches
from penstock.router.store.database import Database
from penstock.router.store.errors import StoreFailure
from penstock.router.store.files import Files
from penstock.router.store.responses import Responses
from penstock.router.store.usage import UsageTable

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0
"""How often files and responses are looked for that have expired, and lines of batches that have ended."""


class Store:
    """Files, batches, responses and totals of use that outlive the router."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.files = Files(database)
        self.batches = Batches(database)
        self.responses = Responses(database)
        self.usage = UsageTable(database)

    async def keep_swept(self) -> None:
        """Deletes files and responses that have expired and lines of batches that have ended, which may take long,
        again and again until it is cancelled."""
        while True:
            try:
                await self.files.sweep()
                await self.batches.sweep()
                await self.responses.sweep()
                await self.usage.sweep()
            except StoreFailure:  # which the database has told
                pass
            except Exception:
                log.exception("files, lines and responses can't be swept away now")
            await asyncio.sleep(SWEEP_SECONDS)
