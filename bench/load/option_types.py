"""The kinds of values that the load generator's options take."""

import json
import re
from typing import Any
from urllib.parse import urlsplit

import click

from penstock.bench.load.measurement import METRICS


class Url(click.ParamType[str]):
    """A server's address, without the routes."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parts = urlsplit(str(value))
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            self.fail(f"{value!r} is not an address such as http://localhost:3000", param, ctx)
        return str(value).rstrip("/").removesuffix("/v1")


class Numbers(click.ParamType[list[float]]):
    """Numbers above 0 with commas between: `1,4,16`."""

    name = "list"

    def __init__(self, is_whole: bool) -> None:
        self._is_whole = is_whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        form = r"\d+" if self._is_whole else r"\d+(?:\.\d+)?"
        numbers = [part.strip() for part in str(value).split(",")]
        if not all(re.fullmatch(form, number) and float(number) > 0 for number in numbers):
            self.fail(f"{value!r} is not a list of numbers such as 1,4,16", param, ctx)
        return [float(number) for number in numbers]


class Limits(click.ParamType[dict[str, float]]):
    """Limits in milliseconds: `ttft:200,itl:50`."""

    name = "limits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, float]:
        limits = {}
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\w+)\s*:\s*(\d+(?:\.\d+)?)\s*", part)
            if not match or match[1] not in METRICS:
                self.fail(f"{part!r} is not a limit such as ttft:200; known are {', '.join(METRICS)}, "
                          "in milliseconds", param, ctx)
            limits[match[1]] = float(match[2])
        return limits


class Fields(click.ParamType[dict[str, Any]]):
    """A JSON object."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        try:
            fields = json.loads(value)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            self.fail(f"{value!r} is not a JSON object", param, ctx)
        return fields
