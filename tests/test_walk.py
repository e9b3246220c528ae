"""The walk of a request in docs/architecture.md: a real request takes it, in that order, past functions that there are.

Router and shard run in one process here, over a real socket between them, so that one profiler sees the whole way.
"""

import ast
import asyncio
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import pytest

from penstock.kernels import dispatch
from tests.one_process import router_and_shard
from tests.paths import ROOT

Hop = tuple[str, str]
"""A file and the qualified name of a function in it."""
MOST_HOPS = 30
MOST_FUNCTIONS = 535
"""Of the project's, that one request enters, helpers and middlewares included; a few depend on which process is
first."""
OF_A_TIMER = ("router/groups/groups.py", "Groups._look")
"""What runs now and then, with or without a request."""


def walk() -> list[Hop]:
    """Reads the hops of the page's walk, `file:function`, in their order."""
    section = (ROOT / "docs/architecture.md").read_text().partition("## The walk of a request")[2].partition("\n## ")[0]
    return re.findall(r"`([\w/]+\.py):([\w.]+)`", section)


def hop_of(code: CodeType) -> Hop | None:
    """Returns the hop that a function of this project is, or None for anything else."""
    path = Path(code.co_filename).resolve()
    rooms = [ROOT / name for name in ("router", "contract", "shard", "kernels")]
    if not any(map(path.is_relative_to, rooms)):
        return None
    return str(path.relative_to(ROOT)), code.co_qualname


@contextmanager
def noting_calls(note: Callable[[CodeType], None]) -> Iterator[None]:
    """Notes every call of a Python function in this thread, and in those that start while the block runs."""
    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            note(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.fixture(scope="module")
def first_calls(tmp_path_factory: pytest.TempPathFactory) -> list[CodeType]:
    """The functions that one `POST /generate_stream` calls, in the order of their first calls."""
    calls: dict[CodeType, None] = {}

    async def until_quiet() -> None:
        """Waits for what still comes after an answer: the shard hears that the sequence has ended."""
        while any(hop_of(code) for code in list(calls)):
            calls.clear()
            await asyncio.sleep(0.1)
        calls.clear()

    async def ask_twice() -> None:
        """The second request finds what lasts longer than a request begun, such as the stream of plans."""
        async with router_and_shard(tmp_path_factory.mktemp("walk")) as client:
            for inputs in ("import os", "def open(path):"):
                await until_quiet()
                body = {"inputs": inputs, "parameters": {"max_new_tokens": 4}}
                async with client.post("/generate_stream", json=body) as response:
                    assert (await response.text()).count("data:") == 4

    with noting_calls(lambda code: calls.setdefault(code)):
        asyncio.run(ask_twice())
    return list(calls)


@pytest.mark.skipif(dispatch.kernel_set() != "cpu", reason="the walk leads through the processor's compiled kernels")
def test_a_request_takes_the_walk_of_the_page(first_calls: list[CodeType]) -> None:
    order: dict[Hop, int] = {}
    for number, code in enumerate(first_calls):
        if hop := hop_of(code):
            order.setdefault(hop, number)
    hops = walk()
    assert 20 < len(hops) <= MOST_HOPS
    assert [hop for hop in hops if hop not in order] == []
    assert hops == sorted(hops, key=order.__getitem__)


@pytest.mark.skipif(dispatch.kernel_set() != "cpu", reason="the walk leads through the processor's compiled kernels")
def test_a_request_enters_few_functions(first_calls: list[CodeType]) -> None:
    names = {hop for code in first_calls if (hop := hop_of(code)) and "<" not in hop[1]} - {OF_A_TIMER}
    assert 300 < len(names) <= MOST_FUNCTIONS


@pytest.mark.parametrize(("file", "name"), walk())
def test_no_hop_only_hands_on(file: str, name: str) -> None:
    """Its body is more than a docstring and one call."""
    scope: ast.AST = ast.parse((ROOT / file).read_text())
    for part in name.split("."):
        scope = next(node for node in ast.walk(scope) if getattr(node, "name", "") == part)
    assert isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef)
    statements = [each for each in ast.walk(scope) if isinstance(each, ast.stmt)]
    assert len(statements) - (ast.get_docstring(scope) is not None) > 2  # itself, and one more


def test_the_page_counts_the_hops() -> None:
    names = [name for _, name in walk()]
    wire, kernel = names.index("encode_plan") + 1, names.index("sample") + 1
    counted = f"{wire} functions to the wire, {kernel - wire} to the last kernel, {len(names) - kernel} back"
    assert counted in " ".join((ROOT / "docs/architecture.md").read_text().split())
