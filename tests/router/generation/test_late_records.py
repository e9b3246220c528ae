"""Records that wait to hear what their requests have used are written before the server ends, whether they hear it or
not."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.router.generation import request_log
from penstock.router.generation.request_record import Generation, RequestRecord


class Written:
    """A journal that lists the routes of records."""

    keeps_texts = False

    def __init__(self) -> None:
        self.routes: list[str] = []

    def write(self, record: RequestRecord, status: int, path: str | None = None) -> None:
        self.routes.append(record.route)

    async def close(self) -> None:
        pass


async def test_the_end_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "_FAREWELL_SECONDS", 0.01)
    monkeypatch.setattr(request_log, "log", SimpleNamespace(isEnabledFor=lambda level: False))
    journal, streams = Written(), []
    for route in ("heard", "unheard"):
        record = RequestRecord(route)
        streams.append(SimpleNamespace(billing=asyncio.get_running_loop().create_future()))
        record.generations = [generation := Generation(b"", [], is_stream=False)]
        generation.submitted(cast(Any, [streams[-1]]))
        request_log.write(record, 200, journal=journal)
    assert journal.routes == []
    streams[0].billing.set_result(None)
    streams[0].billing = None
    await request_log.finish()
    assert journal.routes == ["heard", "unheard"]
