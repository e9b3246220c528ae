"""`GET /explain/{id}`: where the time of a request went."""

from typing import Any

from aiohttp import web
from pydantic import BaseModel

from penstock.router.api.http.body import json_response
from penstock.router.api.http.route import JSON, Reply, Route
from penstock.router.api.tgi import replies as tgi
from penstock.router.api.usual_replies import LATER, UNAUTHORIZED
from penstock.router.errors import NoRoute
from penstock.router.generation import request_record
from penstock.router.generation.services import first_of


class Cause(BaseModel):
    cause: str
    seconds: float


class Phase(BaseModel):
    phase: str
    at: float
    seconds: float
    causes: dict[str, float]


class SettingChange(BaseModel):
    option: str
    value: str
    of: str | None = None


class Explanation(BaseModel):
    """Where the time of a request went; causes are sorted by their seconds."""

    id: str
    answer_id: str | None = None
    time: str
    route: str
    model: str | None = None
    status: int
    error: str | None = None
    total_seconds: float
    explanation: str
    reasons: list[str]
    causes: list[Cause]
    timeline: list[Phase]
    first_token_at: float | None = None
    settings: list[SettingChange]


async def explain(request: web.Request) -> web.StreamResponse:
    """Explains a request of this client's. Raises NotRemembered."""
    explains = first_of(request).around.explains
    if explains is None:
        raise NoRoute(request.method, request.path)
    id = request.match_info["id"].removesuffix("/")
    told: dict[str, Any] = await explains.explain(id, request_record.current().owner)
    return json_response(told)


EXPLAIN = Route(
    "GET", "/explain/{id:.+}", explain,
    "Explains where the time of a request went that has ended lately, by its id or its answer's.",
    {200: Reply("The explanation.", {JSON: Explanation}), 401: UNAUTHORIZED,
     404: Reply("No request of this id is remembered, or it is another key's.", {JSON: tgi.Error}),
     503: Reply("The engine's process, which remembers requests, is away.", {JSON: tgi.Error}, LATER)},
    is_costly=True, tag="Operation")
