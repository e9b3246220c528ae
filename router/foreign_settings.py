"""The settings of a model whose requests servers elsewhere answer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args
from urllib.parse import urlsplit

from penstock.system.arguments import InvalidArgument

Api = Literal["openai", "tgi"]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class ForeignSettings:
    """Names the servers of a model by their URLs, the first of which is asked first; all have the same API."""

    name: str
    urls: tuple[str, ...]
    api: Api = "openai"
    model: str
    """The name that the servers have for the model."""
    api_key_env: str | None = None
    """The variable of the launcher that has the key for the servers."""
    api_key: str | None = field(default=None, repr=False)
    max_concurrent_requests: int
    connect_timeout: float = 5.0
    """The seconds that a connection may take."""
    first_timeout: float = 300.0
    """The seconds until an answer begins: with its first event where it is streamed."""
    pause_timeout: float = 60.0
    """The seconds for which an answer that has begun may pause."""

    @classmethod
    def parse(cls, name: str, given: Mapping[str, Any], max_concurrent_requests: int) -> Self:
        """Makes them of the fields of a model that is listed. Raises InvalidArgument."""
        values = {"model": name, "max_concurrent_requests": max_concurrent_requests, **given}
        urls = values.pop("url")
        known = {each.name for each in fields(cls)} - {"name", "urls", "api_key"}
        if unknown := sorted(set(values) - known):
            raise InvalidArgument(f"`{unknown[0]}` is no setting of a model with a `url`; those are "
                                  f"{', '.join(sorted({*known, 'url'}))}")
        settings = cls(name=name, urls=_urls(urls), **values)
        settings._check()
        return settings

    def _check(self) -> None:
        if self.api not in get_args(Api):
            raise InvalidArgument(f"`api` must be {' or '.join(get_args(Api))}. Given: {self.api!r}")
        if not isinstance(self.model, str) or not self.model:
            raise InvalidArgument(f"`model` must be a name. Given: {self.model!r}")
        if self.api_key_env is not None and not _VARIABLE.fullmatch(str(self.api_key_env)):
            raise InvalidArgument("`api_key_env` must be the name of an environment variable")
        if not _is_number(self.max_concurrent_requests, int) or self.max_concurrent_requests < 1:
            raise InvalidArgument("`max_concurrent_requests` must be at least 1. Given: "
                                  f"{self.max_concurrent_requests!r}")
        for timeout in ("connect_timeout", "first_timeout", "pause_timeout"):
            if not _is_number(seconds := getattr(self, timeout), int | float) or seconds <= 0:
                raise InvalidArgument(f"`{timeout}` must be a number of seconds above 0. Given: {seconds!r}")


@dataclass(frozen=True, slots=True)
class Fallback:
    """Names the models elsewhere that are asked in their order where a model here fails before its answer begins, or
    has not begun it `after` so many seconds."""

    names: tuple[str, ...]
    after: float | None = None

    @classmethod
    def parse(cls, names: Any, after: Any) -> Self | None:
        """Makes one of the fields of a model that is listed; None if there are none. Raises InvalidArgument."""
        if names is None and after is None:
            return None
        listed = [names] if isinstance(names, str) else names
        if not isinstance(listed, list) or not listed or not all(isinstance(name, str) for name in listed):
            raise InvalidArgument("`fallback` must be the name of a model with a `url`, or a list of some. "
                                  f"Given: {names!r}")
        if after is not None and (not _is_number(after, int | float) or after <= 0):
            raise InvalidArgument(f"`fallback_after` must be a number of seconds above 0. Given: {after!r}")
        return cls(tuple(listed), after)


def _urls(given: object) -> tuple[str, ...]:
    """Returns the URLs without what the paths of routes begin with. Raises InvalidArgument, without what may be a
    password."""
    urls = given if isinstance(given, list) else [given]
    if not urls:
        raise InvalidArgument("`url` must be a URL, or a list of some. Given: []")
    found = tuple(_url(each) for each in urls)
    if twice := [url for url in found if found.count(url) > 1]:
        raise InvalidArgument(f"`url` has {twice[0]} twice")
    return found


def _url(given: object) -> str:
    try:
        parts = urlsplit(given if isinstance(given, str) else "")
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right or parts.username is not None or parts.query or parts.fragment:
        raise InvalidArgument("`url` must be http://HOST:PORT or https://HOST, which may have a path, but no user and "
                              f"no query{'' if isinstance(given, str) and '@' in given else f'. Given: {given!r}'}")
    return parts.geturl().rstrip("/").removesuffix("/v1")


def _is_number(given: object, kind: Any) -> bool:
    return isinstance(given, kind) and not isinstance(given, bool)
