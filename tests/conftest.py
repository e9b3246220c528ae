import gc
import logging
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from penstock.kernels import dispatch
from penstock.system import child_environment
from tests.paths import ROOT

child_environment.prepare_grpc()

# The tensors of the tests are small, and threads of torch's that wait for a core make them many times slower.
torch.set_num_threads(1)

# What is imported and collected stays until the end. The garbage collector need not look at it again and again.
gc.disable()

# Shells let what runs in the background ignore Ctrl-C, and what the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Triton reads it as kernels are defined, and what the tests start inherits it.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

PLUGINS = {"pytest_asyncio": ("asyncio_mode", "asyncio_default_fixture_loop_scope"),
           "pytest_timeout": ("timeout", "timeout_method")}
"""Whose settings pyproject.toml has. The tests of kernels need none of them, and a GPU's machine may have none."""
IS_BARE = find_spec("aiohttp") is None
"""Whether this machine has only what the kernels need."""
collect_ignore = [path.name for path in (ROOT / "tests").iterdir() if path.name != "kernels"] * IS_BARE

FIRST = ("clients", "faults", "bench", "shard", "e2e", "offline", "kernels", "fallback")
"""The folders with the longest files: they begin first, so that all workers end at about the same time."""


@pytest.fixture(autouse=True)
def _choice_of_kernels() -> Iterator[None]:
    """Lets the next test choose its kernels anew, when what this one set is undone."""
    yield
    dispatch.kernel_set.cache_clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    for plugin, settings in PLUGINS.items():
        for name in settings if find_spec(plugin) is None else ():
            parser.addini(name, f"{plugin}'s, which is not installed")
    parser.addoption("--every-case", action="store_true",
                     help="run every case of the kernels' grids, without it those in which every two values meet; "
                          "and more rounds and seeds of the longest tests")
    parser.addoption("--soak-seconds", type=float, default=25.0,
                     help="for how long memory is watched under mixed load, at least; default: 25")


@pytest.fixture
def every_case(request: pytest.FixtureRequest) -> bool:
    """Tells whether a test shall take all its cases or rounds, however long that is."""
    return bool(request.config.getoption("every_case"))


def pytest_collection_finish() -> None:
    """Lets the garbage collector begin, with the objects of the tests alone, and torch's loggers hand on all.

    pytest gives its handlers to each logger that hands nothing on, six times a test: torch has dozens of them.
    """
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "torch":
            logger.propagate = True
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # each test makes some thousands of objects, and nearly all go without it
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what only `--every-case` runs; where workers share the files, begins with the longest."""
    if not config.getoption("every_case"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("every_case")])
        items[:] = [item for item in items if not item.get_closest_marker("every_case")]
    if hasattr(config, "workerinput"):  # which pytest-xdist gives to workers alone
        rooms = [item.path.relative_to(ROOT).parts[1] for item in items]
        order = sorted(range(len(items)), key=lambda index: (*FIRST, rooms[index]).index(rooms[index]))
        items[:] = [items[index] for index in order]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Chooses who runs which of the quick tests; the slow ones of tests/e2e are too many for one worker."""
    if config.getoption("dist") != "loadfile" or "not slow" not in config.getoption("markexpr"):
        return None
    from tests.one_server import ByServer

    return ByServer(config, log)
