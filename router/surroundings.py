"""The parts around the generation of answers, as the settings ask for them."""

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.router.checks.checker import Checker
from penstock.router.config import RouterConfig
from penstock.router.explaining.explainer import Explainer
from penstock.router.explaining.recent import Stories
from penstock.router.generation.accounting import Accounting
from penstock.router.generation.around import Around
from penstock.router.journal.form import Form
from penstock.router.journal.journal import Journal
from penstock.router.journal.places import InFile, Place
from penstock.router.journal.redaction import Redaction
from penstock.router.journal.several import Several
from penstock.router.metrics.caches import CacheMetrics
from penstock.router.metrics.metrics import Metrics
from penstock.router.response_cache.backend import Backend, Bounds
from penstock.router.response_cache.cache import ResponseCache
from penstock.router.response_cache.memory import Memory
from penstock.system.arguments import InvalidArgument

if TYPE_CHECKING:
    from penstock.router.store.store import Store
    from penstock.system.receipt_signature import Signer

IN_STORE = ("sqlite", "postgresql")
"""The words for a place in the store's database."""


async def open_around(
    config: RouterConfig, store: "Store | None", metrics: Metrics, has_keys: bool, stories: Stories
) -> Around:
    """Returns the parts that are asked for, whose series are in `metrics`. Where the server `has_keys` each has kept
    answers of its own, unless they are to be shared. Requests are remembered among `stories`. Raises
    InvalidArgument."""
    checker = None if config.output_checks is None else await Checker.opened(config.output_checks, metrics.checks)
    signer = None if config.receipt_key is None else _signer(config.receipt_key)
    accounting = await _accounting(config, store, metrics)
    explainer = Explainer(stories, config.explained_requests)
    journals = [each for each in (_journal(config, store, metrics), accounting, explainer) if each is not None]
    return Around(_cache(config, store, metrics, has_keys), Several(journals), checker,
                  signer=signer, accounting=accounting, explains=explainer)


def _signer(file: Path) -> "Signer":
    from penstock.system.receipt_signature import Signer  # which imports cryptography

    try:
        return Signer.opened(file)
    except ValueError as error:
        raise InvalidArgument(f"`receipt_key`: {error}") from error


def _cache(
    config: RouterConfig, store: "Store | None", metrics: Metrics, has_keys: bool
) -> ResponseCache | None:
    if config.response_cache is None:
        return None
    bounds = Bounds(config.response_cache_size, config.response_cache_age)
    backend = _backend(config.response_cache, bounds, store, metrics.cache)
    return ResponseCache(backend, bounds, metrics.cache, config.response_cache_shared or not has_keys)


def _journal(config: RouterConfig, store: "Store | None", metrics: Metrics) -> Journal | None:
    if config.request_log is None:
        return None
    form = Form(config.request_log_content, Redaction(config.request_log_redact))
    return Journal(_place(config.request_log, config, store), form, metrics.journal, config.request_log_sample)


async def _accounting(config: RouterConfig, store: "Store | None", metrics: Metrics) -> Accounting | None:
    if config.prices is None:
        return None
    assert store is not None
    return await Accounting.opened(config.prices, store.usage, metrics.accounts)


def _place(name: str, config: RouterConfig, store: "Store | None") -> Place:
    if name not in IN_STORE:
        return InFile(_own(Path(name), config), config.request_log_rotate)
    from penstock.router.journal.in_database import InDatabase  # which import SQLAlchemy
    from penstock.router.store.request_log import RequestLog

    assert store is not None
    return InDatabase(RequestLog(store.database))


def _own(file: Path, config: RouterConfig) -> Path:
    """Returns the file of this process, of which each of several has its own."""
    return file if config.role == "alone" else file.with_name(f"{file.stem}.{config.member}{file.suffix}")


def _backend(place: str, bounds: Bounds, store: "Store | None", metrics: CacheMetrics) -> Backend:
    if place == "memory":
        return Memory(bounds, metrics)
    if place in IN_STORE:
        from penstock.router.response_cache.in_database import InDatabase  # which imports SQLAlchemy

        assert store is not None
        return InDatabase(store.database, bounds, metrics)
    from penstock.router.response_cache.in_redis import InRedis  # which imports Redis's client

    return InRedis(place, bounds)
