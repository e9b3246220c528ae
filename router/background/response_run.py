"""The making of one response of the background, from its request to its last event."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import orjson

from penstock.router import request_id
from penstock.router.api.http.receipts import FIELD, give_receipt
from penstock.router.api.responses import answering, keeping, response
from penstock.router.api.responses.bodies import ResponseBody
from penstock.router.api.responses.events import ResponseEvents
from penstock.router.api.responses.making import Making
from penstock.router.api.responses.output_items import Event
from penstock.router.errors import AnotherAnswer, Dropped, Overloaded, RouterError, Unhealthy
from penstock.router.generation import request_log, request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import Identity, Wish
from penstock.router.generation.request_record import recording
from penstock.router.generation.service import Service
from penstock.router.generation.services import Services
from penstock.router.leased_work import farewell
from penstock.router.store.leases import RENEW_SECONDS, LeaseLost
from penstock.router.store.patience import patiently
from penstock.router.store.records import ResponseStatus
from penstock.router.store.response_leases import ResponseLease
from penstock.router.store.store import Store

SAVE_SECONDS = 0.5
"""How long an event waits for others that are stored with it."""
RETRY_SECONDS = 1.0
"""How long a response waits for a group that is away."""


class ResponseRun:
    """Makes the response of a lease until it has ended, or the lease is lost."""

    def __init__(self, services: Services, store: Store, lease: ResponseLease) -> None:
        self._services = services
        self._store = store
        self._lease = lease
        self._begun: dict[str, Any] = orjson.loads(lease.response.response)
        self._events: list[bytes] = []
        """Those that are not stored yet."""
        self._num_known = 0
        """How many of the events that come next are stored already."""
        self._output: list[dict[str, Any]] = []
        self._saved_at = time.monotonic()
        self._is_woken = False
        self._saving = asyncio.Lock()

    def wake(self) -> None:
        """Tells that the response may have been cancelled or deleted."""
        self._is_woken = True

    async def run(self) -> None:
        """Makes the response. Raises LeaseLost."""
        with request_id.naming(None), recording("POST /v1/responses (background)") as record:
            self._services.first.around.attribute(record, self._lease.response.api_key)
            record.is_admitted = self._lease.response.status is not ResponseStatus.QUEUED
            status = Dropped.status
            try:
                status = await self._run()
            finally:
                request_log.write(record, request_log.status_of(record, status),
                                  journal=self._services.first.around.journal)

    async def give_up(self) -> None:
        """Ends the response as failed by a fault of the router. Raises LeaseLost."""
        await self._fail(RouterError("The server has failed at this response again and again, by a fault of its own "
                                     "that its log tells."))

    async def _run(self) -> int:
        """Returns the status that a client would have got who had waited for the response."""
        making = asyncio.create_task(self._make(), name="making a response")
        try:
            while not making.done():
                await asyncio.wait([making], timeout=SAVE_SECONDS)
                await patiently(self._save)
            whole, last = making.result()
        except asyncio.CancelledError:
            async with farewell():
                await self._save()
            raise
        except LeaseLost:
            raise
        except RouterError as error:
            await self._fail(error)
            return error.status
        finally:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
        await self._end(whole, last)
        return 200

    async def _fail(self, error: RouterError) -> None:
        failed = response.failed(self._begun, error, self._output)
        if not self._lease.num_events and not self._events:
            self._events = [orjson.dumps(event) for event in ResponseEvents(self._begun).begin()]
        number = self._lease.num_events + len(self._events)
        last = {"type": "response.failed", "sequence_number": number, "response": failed}
        await self._end(failed, last)

    async def _save(self) -> None:
        """Stores the events that there are, and sees from time to time whether the response is still to be made."""
        is_due = self._is_woken or time.monotonic() - self._saved_at > RENEW_SECONDS
        self._is_woken = False
        async with self._saving:
            if self._events or is_due:
                saved = self._events[:]
                await self._lease.save(saved)
                del self._events[:len(saved)]
                self._saved_at = time.monotonic()

    async def _end(self, whole: Mapping[str, Any], last: Event) -> None:
        events = [*self._events, orjson.dumps(last)]
        await patiently(partial(
            self._lease.end, ResponseStatus(whole["status"]), orjson.dumps(whole),
            len(orjson.dumps(whole["output"])), events))

    async def _make(self) -> tuple[dict[str, Any], Event]:
        """Returns the whole response and its last event, behind those that are stored; waits while no group can answer.
        Raises RouterError."""
        while True:
            async with self._saving:
                self._events.clear()
                self._num_known = self._lease.num_events
            try:
                return await self._answer()
            except (Overloaded, Unhealthy):
                await asyncio.sleep(RETRY_SECONDS)

    async def _answer(self) -> tuple[dict[str, Any], Event]:
        kept = self._lease.response
        seed = int(kept.answer_name.split(".")[1])
        body = ResponseBody.model_validate(orjson.loads(kept.request)).model_copy(
            update={"seed": seed, "service_tier": None, "priority": None})
        async with self._services.using(body.model) as service:
            return await self._answered(service, body)

    async def _answered(self, service: Service, body: ResponseBody) -> tuple[dict[str, Any], Event]:
        request_record.describe("response", body.model)
        before = await patiently(lambda: keeping.before(body, self._store, service.limits))
        with Asking(service, is_background=True) as asking:
            wish = Wish(takes_ids=True)
            async with answering.asked_of(asking, body, before, wish, is_stream=True) as asked:
                self._check(asked.identity)
                try:
                    await patiently(lambda: self._lease.begin(str(asked.identity.name)))
                except LeaseLost:  # it was cancelled or deleted, which is no failure of the server's
                    asking.failed(Dropped())
                    raise
                async with asked.answering() as answers:
                    making = Making(asked, answers, body, {**self._begun, "status": "in_progress"})
                    self._take(making.begin())
                    async for _, part in answers:
                        self._take(making.take(part))
                        self._output = making.output
                whole = making.whole()
                if FIELD in self._begun:
                    whole[FIELD] = await self._receipt()
                return whole, making.end(whole)

    async def _receipt(self) -> dict[str, Any]:
        """Returns the receipt of the response, as if it had not been asked for in the background: so it can be asked
        for again and waited for. Raises ValidationError."""
        asked = orjson.loads(self._lease.response.request)
        del asked["background"]
        return await give_receipt("/v1/responses", orjson.dumps(asked).decode(), self._services.first.around.signer)

    def _take(self, events: Iterable[Event]) -> None:
        """Takes the next events, of which the first may be stored already."""
        for event in events:
            if self._num_known:
                self._num_known -= 1
            else:
                self._events.append(orjson.dumps(event))

    def _check(self, identity: Identity) -> None:
        """Raises AnotherAnswer if clients may have seen events that would not come again."""
        is_same = str(identity.name) == self._lease.response.answer_name and identity.facts.is_deterministic
        if self._lease.num_events and not is_same:
            raise AnotherAnswer("a part of the response was made by a server whose answers differ from those of this "
                                "one: ask again")
