"""The router's part that makes responses of the background: it takes those that no router makes, several at once."""

from collections.abc import Collection

from aiohttp import web

from penstock.router.api.openai.storage import STORE
from penstock.router.background.response_run import ResponseRun
from penstock.router.generation.services import SERVICES, Services
from penstock.router.leased_work import Worker, run_amid
from penstock.router.memory_ceiling import NUM_RESPONSES
from penstock.router.store.response_leases import ResponseLease
from penstock.router.store.store import Store


class ResponseRunner(Worker):
    """Makes responses of a store. `owner` names the router, as in `Lease.claim`."""

    kind = "response"
    max_deaths = 3

    def __init__(self, services: Services, store: Store, owner: str) -> None:
        super().__init__(store.responses.changed)
        self._services = services
        self._store = store
        self._owner = owner

    async def claim(self, held: Collection[str]) -> tuple[ResponseLease, ResponseRun] | None:
        """Takes a response."""
        if len(held) >= NUM_RESPONSES:
            return None
        lease = await ResponseLease.claim(self._store.database, self._owner, held)
        if lease is None:
            return None
        return lease, ResponseRun(self._services, self._store, lease)


def add_response_runner(app: web.Application, owner: str) -> None:
    """Makes the responses of the app's store from its start until it begins to end."""
    run_amid(app, "responses", lambda: ResponseRunner(app[SERVICES], app[STORE], owner).run())
