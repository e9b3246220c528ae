"""`GET /v1/usage`: what keys have used and paid, by day and model, and what is left of their budgets."""

import re
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, Literal

from aiohttp import web
from pydantic import BaseModel

from penstock.router.accounts.errors import NoAccounts
from penstock.router.accounts.use import TOKENS, Account, Use, money
from penstock.router.api.http.access import ACCESS
from penstock.router.api.http.body import json_response
from penstock.router.api.openai.storage import check_query
from penstock.router.errors import ValidationError
from penstock.router.generation import request_record
from penstock.router.generation.accounting import Accounting
from penstock.router.generation.services import first_of

MOST_DAYS, MOST_ROWS = 366, 10_000
"""How many days may be asked for, and how many totals an answer may have."""
QUERY = {
    "from": "The first day, such as 2026-11-29, by UTC; the last one unless it is given.",
    "to": "The last day; today unless it is given.",
    "key": "The name of a key, for those who may see all: its totals alone.",
}
"""The parameters of the route."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class UsedTokens(BaseModel):
    """Tokens by kind."""

    input: int
    computed: int
    cached: int
    replayed: int
    drafted: int
    accepted: int
    output: int
    kept: int


class UsageRow(BaseModel):
    """The use of a model by a key on a day. `cost` is a decimal number, exactly."""

    object: Literal["usage"]
    day: str
    key: str
    model: str
    requests: int
    tokens: UsedTokens
    step_us: int
    kv_token_ms: int
    cost: str
    currency: str


class BudgetState(BaseModel):
    """The budget of a key, and what is spent of it today. Amounts of money are decimal numbers; null stands for no
    bound."""

    key: str
    tokens: int | None
    spent_tokens: int
    money: str | None
    spent_money: str
    currency: str
    opens_at: str


class UsagePage(BaseModel):
    """Totals, in the order of days, keys and models. `budget` is the key's own; null for those who see all keys, and
    where it has none."""

    object: Literal["list"]
    data: list[UsageRow]
    budget: BudgetState | None


async def usage(request: web.Request) -> web.Response:
    """Answers with the totals of the client's key, or of all keys to those who may see the server's state."""
    accounting = first_of(request).around.accounting
    if accounting is None:
        raise NoAccounts
    check_query(request, QUERY)
    last = _day(request.query, "to", date.fromisoformat(accounting.today))
    first = _day(request.query, "from", last)
    if not timedelta(0) <= last - first < timedelta(MOST_DAYS):
        raise ValidationError(f"`from` must be at most {MOST_DAYS - 1} days before `to`, and not behind it. Given: "
                              f"{first} and {last}")
    key, own = _keys(request)
    found = await accounting.find(first.isoformat(), last.isoformat(), key, MOST_ROWS + 1)
    if len(found) > MOST_ROWS:
        raise ValidationError(f"`from` and `to` must have at most {MOST_ROWS} totals between them: ask for fewer days")
    return json_response({"object": "list", "data": [_row(*each) for each in found],
                          "budget": None if own is None else _budget(accounting, own)})


def _keys(request: web.Request) -> tuple[str | None, str | None]:
    """Returns the name of the key whose totals are asked for, None for all, and that of the client's own key, None of a
    client that may see all. Raises ValidationError."""
    access, own = request.app[ACCESS], request_record.current().key
    asked = request.query.get("key")
    if own is None and (access.api_keys or access.metrics_keys):
        return asked, None
    own = own or ""
    if asked not in (None, own):
        raise ValidationError("`key` must be the name of the client's own key, for only those who have a key for the "
                              f"server's state see others. Given: {ascii(asked)[1:-1]:.64}")
    return own, own


def _day(query: Mapping[str, str], name: str, default: date) -> date:
    text = query.get(name)
    if text is None:
        return default
    try:
        return date.fromisoformat(text if _DAY.fullmatch(text) else "")
    except ValueError as error:
        raise ValidationError(f"`{name}` must be a day such as 2026-11-29. Given: {ascii(text)[1:-1]:.40}") from error


def _row(account: Account, use: Use) -> dict[str, Any]:
    return {"object": "usage", "day": account.day, "key": account.key, "model": account.model,
            "requests": use.requests, "tokens": {kind: use.tokens(kind) for kind in TOKENS}, "step_us": use.step_us,
            "kv_token_ms": use.kv_token_ms, "cost": money(use.nanos), "currency": account.currency}


def _budget(accounting: Accounting, key: str) -> dict[str, Any] | None:
    found = accounting.budget_of(key)
    if found is None:
        return None
    budget, spent = found
    opens = date.fromisoformat(accounting.today) + timedelta(1)
    return {"key": key, "tokens": budget.tokens, "spent_tokens": spent.tokens,
            "money": None if budget.nanos is None else money(budget.nanos), "spent_money": money(spent.nanos),
            "currency": accounting.prices.currency, "opens_at": f"{opens}T00:00:00Z"}
