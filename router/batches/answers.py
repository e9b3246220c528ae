"""The answers to the lines of a batch: `{"id", "custom_id", "response", "error"}`, one JSON object a line."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson

from penstock.router import request_id
from penstock.router.api.http.failures import to_router_error
from penstock.router.api.http.receipts import give_receipt, taken_out_of
from penstock.router.api.openai.failures import told
from penstock.router.api.whole_answers import whole_answer
from penstock.router.batches.lines import Line
from penstock.router.errors import Dropped, Overloaded, Unhealthy
from penstock.router.generation import request_log
from penstock.router.generation.identity import Wish
from penstock.router.generation.request_record import recording
from penstock.router.generation.services import RELOAD_SECONDS, NotLoaded, Services
from penstock.router.store.records import AnsweredLine

LOAD_TRIES = 3
"""After how many tries to load its model a line is answered with the error."""
RETRY_SECONDS = 1.0
"""How long a line waits for a group that is away."""
_ID = "batch_req_"
BEGIN = b'{"id":"' + _ID.encode()
"""How the line of an answer begins."""


@dataclass(frozen=True, slots=True)
class LineAnswer:
    """The answer to a line: the status and the body that the route would have answered over HTTP."""

    custom_id: str
    status: int
    request_id: str
    body: dict[str, Any]

    @property
    def has_failed(self) -> bool:
        """Whether the body tells of an error."""
        return self.status >= HTTPStatus.BAD_REQUEST

    def to_json(self, name: str | None = None) -> bytes:
        """Returns the line of the output, whose id is made of `name`, or of chance."""
        response = {"status_code": self.status, "request_id": self.request_id, "body": self.body}
        return _line(self.custom_id, response, None, name)

    def to_store(self, number: int) -> AnsweredLine:
        """Returns the answer to the line of this number, as it is stored."""
        usage = self.body.get("usage") or {}
        told = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
        made = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {}
        return AnsweredLine(
            number, self.to_json(), self.has_failed, usage.get("prompt_tokens", usage.get("input_tokens", 0)),
            told.get("cached_tokens", 0), usage.get("completion_tokens", usage.get("output_tokens", 0)),
            made.get("reasoning_tokens", 0))


def no_answer(custom_id: str | None, code: str, message: str, name: str | None = None) -> bytes:
    """Returns the line of the output for a line that was not asked, or not to the end; `message` says why. A line
    that can't be read has no `custom_id`. Its id is made of `name`, or of chance."""
    return _line(custom_id, None, {"code": code, "message": message}, name)


def _line(custom_id: str | None, response: dict[str, Any] | None, error: dict[str, Any] | None, name: str | None
          ) -> bytes:
    return orjson.dumps({"id": id_of(name or secrets.token_hex(16)), "custom_id": custom_id, "response": response,
                         "error": error}, option=orjson.OPT_APPEND_NEWLINE)


def id_of(name: str) -> str:
    """Returns the id of an answer of this name."""
    return _ID + name


async def answer_patiently(services: Services, line: Line, check: Callable[[], None] = lambda: None) -> LineAnswer:
    """Returns the answer to a line as `answer_line` does, which is asked again while no group can answer, as long as
    `check` raises no error. A model that can't be loaded is tried a few times."""
    num_tries = 0
    while True:
        try:
            return await answer_line(services, line)
        except (Overloaded, Unhealthy) as error:
            pause = RELOAD_SECONDS if isinstance(error, NotLoaded) else RETRY_SECONDS
            num_tries += isinstance(error, NotLoaded)
            if num_tries == LOAD_TRIES:
                with request_id.naming(None) as name:
                    status, body = told(error, services.first.limits.tgi_openai_routes)
                    return LineAnswer(line.custom_id, status, name, body)
        check()
        await asyncio.sleep(pause)


async def _whole(services: Services, line: Line) -> dict[str, Any]:
    """Returns the whole answer to a line, with a receipt if that is asked for. Raises RouterError."""
    asked = {**line.body}
    wants_receipt = taken_out_of(asked)
    body, _ = await whole_answer(services, line.url, asked, Wish(key=line.custom_id), is_background=True)
    if wants_receipt:
        signer = services.first.around.signer
        body["receipt"] = await give_receipt(line.url, orjson.dumps(asked).decode(), signer)
    return body


async def answer_line(services: Services, line: Line) -> LineAnswer:
    """Answers a line of a batch, as HTTP would, but behind all other requests; a failure is an answer, too.

    The `custom_id` is the idempotency key: a line that is asked again, after a restart or in another batch, gets the
    same answer, also if it is sampled. Raises Overloaded or Unhealthy if it is to be asked again later.
    """
    with request_id.naming(None) as name, recording(f"POST {line.url} (batch)") as record:
        services.first.around.attribute(record, line.api_key)
        status = Dropped.status
        try:
            body = await _whole(services, line)
            status = int(HTTPStatus.OK)
        except (Overloaded, Unhealthy) as error:
            status = error.status
            raise
        except Exception as error:
            is_tgi = services.first.limits.tgi_openai_routes
            status, body = told(to_router_error(error), is_tgi)
        finally:
            request_log.write(record, request_log.status_of(record, status),
                              journal=services.first.around.journal)
        return LineAnswer(line.custom_id, status, name, body)
