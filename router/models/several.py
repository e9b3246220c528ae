"""The models of a server as its settings name them."""

from functools import partial
from pathlib import Path

import orjson

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.router.config import RouterConfig
from penstock.router.foreign.models import ForeignModels
from penstock.router.generation.service import Service
from penstock.router.generation.services import Services
from penstock.router.limits import Limits
from penstock.router.metrics.metrics import Metrics
from penstock.router.metrics.triton import TritonNames
from penstock.router.metrics.vllm import VllmNames
from penstock.router.models.aliases import Aliases
from penstock.router.models.gateway import Gateway
from penstock.router.models.model import Count, Model
from penstock.router.models.models import Models
from penstock.router.models.opened import Opened
from penstock.router.models.orders import Orders
from penstock.system.leftovers import ALIASES_FILE


def services_of(config: RouterConfig, first: Service) -> Services:
    """Returns the services of a server whose first model is loaded. What aliases have become is read from the server's
    folder, where the router before this one has left it."""
    if config.orders_fd < 0:
        return Services(first)
    orders = Orders(config.orders_fd)
    open = partial(Opened.open, around=first.around)
    others = [Model(served, orders, _counting(served.config), open) for served in config.others]
    file = None if config.folder is None else config.folder / ALIASES_FILE
    kind = Gateway if config.is_gateway else Models
    return kind(first, config.num_bytes, others, _aliases(config, file), max_memory=config.max_model_memory,
                max_load_wait=config.max_load_wait, file=file, may_change=bool(config.api_key or config.api_key_file),
                elsewhere=ForeignModels.open(config.elsewhere), fallbacks=config.fallbacks, pipelines=config.pipelines)


def _aliases(config: RouterConfig, file: Path | None) -> Aliases:
    if file is not None and file.exists():
        return Aliases(**orjson.loads(file.read_bytes()))
    return Aliases(config.aliases, config.shadows)


def _counting(config: RouterConfig) -> Count:
    """Returns the function that makes the metrics of a model beside the first."""
    def count(facts: Facts, limits: Limits) -> Metrics:
        vllm = VllmNames(config.name) if config.vllm_metrics else None
        triton = TritonNames(config.name) if config.triton_metrics else None
        return Metrics(limits, vllm=vllm, triton=triton, has_tei=Task.GENERATE not in facts.tasks)

    return count
