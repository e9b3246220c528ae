"""Which models are loaded when, whatever is asked for meanwhile: with models whose parts open when the test says so."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.config import RouterConfig, ServedModel
from penstock.router.errors import ModelNotFound, Unhealthy, ValidationError
from penstock.router.limits import LimitError
from penstock.router.models import model as model_room
from penstock.router.models import models as models_room
from penstock.router.models.aliases import Aliases
from penstock.router.models.model import Model, State
from penstock.router.models.models import Models
from penstock.router.models.orders import OrderPipe, Orders
from penstock.router.notices import Notice, NoticePipe
from tests.eventually import until
from tests.fakes import FACTS, LIMITS


def service_of(name: str, *adapters: str) -> Any:
    """Stands for the service of a model."""
    return SimpleNamespace(
        info=SimpleNamespace(model_id=name), adapters=Registry(), facts=FACTS, limits=LIMITS,
        serves=lambda asked: asked in (name, *adapters),
        engine=SimpleNamespace(give_up=lambda: None, keep_waiting=lambda: None))


class Parts:
    """The parts of one loaded model, which note that they are closed."""

    def __init__(self, name: str) -> None:
        self.service = service_of(name)
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class Server:
    """Models `first`, `a`, `b` and `c` of 4 bytes each, and the orders that the launcher gets."""

    def __init__(self, models: Models, others: dict[str, Model], orders: list[tuple[str, str]],
                 pipes: dict[str, NoticePipe]) -> None:
        self.models = models
        self.others = others
        self.orders = orders
        self.pipes = pipes

    async def use(self, name: str, client: str | None = None) -> str:
        service = await self.models.take(name, client)
        self.models.give_back(service)
        return service.info.model_id

    def states(self) -> str:
        return " ".join(f"{name}:{model.state}" for name, model in self.others.items() if model.state != "unloaded")


Open = Callable[[str], Any]


@asynccontextmanager
async def serving(
    tmp_path: Path, opens: dict[str, list[Any]] | None = None, pinned: str = "", keep_alive: float = 1e6,
    elsewhere: str = "", clears: bool = True, max_memory: int | None = None, max_load_wait: float = 5.0,
    aliases: dict[str, dict[str, float]] | None = None,
) -> AsyncIterator[Server]:
    """Runs the models. `opens` has for a name what its loads do in turn: an event to wait for, an error, or nothing."""
    left = opens or {}

    async def open(config: RouterConfig, count: object, on_end: object) -> Parts:
        happens = left.get(config.name, [])
        outcome = happens.pop(0) if happens else None
        if isinstance(outcome, asyncio.Event):
            await outcome.wait()
        elif outcome is not None:
            raise outcome
        return Parts(config.name)

    orders: list[tuple[str, str]] = []
    pipe = OrderPipe()
    pipes = {name: NoticePipe() for name in "abc"}

    def take(order: str, model: str) -> None:
        orders.append((order, model))
        if order == "unload":
            pipes[model].send(Notice.LEFT)

    pipe.follow(take)
    others = {name: Model(
        ServedModel(config=RouterConfig(
            model_id=f"/{name}", served_name=name, model_dir=tmp_path, tokenizer_json=tmp_path,
            adapters=(AdapterSource("tuned", tmp_path, "org/tuned"),) if name == "c" else (),
            shard_sockets=(f"unix:{tmp_path / name}",), groups="x:1" if name in elsewhere else None,
            listen_fd=-1, notices_fd=pipes[name].fd, num_bytes=4, log_level="INFO", compute_type=None,
            vertex_predict_route=None, vertex_health_route=None), is_pinned=name in pinned, keep_alive=keep_alive),
        Orders(pipe.fd), lambda facts, limits: None, open) for name in "abc"}  # type: ignore[arg-type,return-value]
    models = Models(service_of("first", "adapter"), 4, [*others.values()], Aliases(aliases or {}),
                    max_memory=max_memory, max_load_wait=max_load_wait, file=tmp_path / "aliases")
    running = asyncio.create_task(models.run())
    await until(lambda: len(orders) >= len(others))
    if clears:  # the orders by which shards of a router before this one end
        orders.clear()
    try:
        yield Server(models, others, orders, pipes)
    finally:
        running.cancel()
        await models.close()
        for each in pipes.values():
            asyncio.get_running_loop().remove_reader(each.fd)
            each.close()
        pipe.close()


async def test_requests_choose_among_models(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert [await server.use(name) for name in ("first", "adapter", "tgi", "b")] == ["first"] * 3 + ["b"]
        assert (await server.models.take(None)).info.model_id == "first"
        with pytest.raises(ModelNotFound, match="`x` does not exist"):
            await server.use("x")
        assert server.states() == "b:ready"
        await until(lambda: server.orders == [("load", "b")])


async def test_those_who_wait_share_one_load(tmp_path: Path) -> None:
    loaded = asyncio.Event()
    async with serving(tmp_path, {"a": [loaded]}) as server:
        waiting = [asyncio.create_task(server.use("a")) for _ in range(3)]
        await until(lambda: server.states() == "a:loading")
        assert await server.use("first") == "first"
        loaded.set()
        assert await asyncio.gather(*waiting) == ["a"] * 3
        await until(lambda: server.orders == [("load", "a")])


async def test_a_load_goes_on_for_others_when_its_client_leaves(tmp_path: Path) -> None:
    loaded = asyncio.Event()
    async with serving(tmp_path, {"a": [loaded]}) as server:
        leaving = asyncio.create_task(server.use("a"))
        await until(lambda: server.states() == "a:loading")
        leaving.cancel()
        loaded.set()
        assert await server.use("a") == "a"


async def test_a_request_waits_for_so_long(tmp_path: Path) -> None:
    async with serving(tmp_path, {"a": [asyncio.Event()]}, max_load_wait=0.05) as server:
        with pytest.raises(Unhealthy, match=r"a was not loaded within 0\.05 s"):
            await server.use("a")


async def test_a_model_that_can_not_be_loaded_says_why_and_is_tried_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, {"a": [LimitError("too much")]}) as server:
        for _ in range(2):
            with pytest.raises(Unhealthy, match="a could not be loaded: too much"):
                await server.use("a")
        assert server.states() == "a:failed"
        await until(lambda: server.orders == [("load", "a"), ("unload", "a")])
        monkeypatch.setattr(model_room, "RETRY_SECONDS", 0.0)
        assert await server.use("a") == "a"


async def test_a_model_whose_shards_are_given_up_fails(tmp_path: Path) -> None:
    async with serving(tmp_path, {"a": [asyncio.Event()]}) as server:
        waiting = asyncio.create_task(server.use("a"))
        await until(lambda: server.states() == "a:loading")
        server.pipes["a"].send(Notice.GIVEN_UP)
        with pytest.raises(Unhealthy, match="its shards could not be started"):
            await waiting


async def test_a_loaded_model_whose_shards_are_given_up_is_unloaded_and_loaded_anew(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.use("a")
        server.pipes["a"].send(Notice.GIVEN_UP)
        await until(lambda: server.others["a"].state is State.UNLOADED)
        assert await server.use("a") == "a"


async def test_the_least_recently_used_model_leaves_for_another(tmp_path: Path) -> None:
    async with serving(tmp_path, max_memory=12) as server:
        for name in "aba":
            await server.use(name)
        await server.use("c")
        assert server.states() == "a:ready c:ready"
        await until(lambda: ("unload", "b") in server.orders)


async def test_models_that_take_each_others_place_answer_all_who_wait_before_they_leave(tmp_path: Path) -> None:
    async with serving(tmp_path, max_memory=8) as server:
        names = "abacbcab"
        assert await asyncio.gather(*map(server.use, names)) == [*names]
        await until(lambda: [each for each in server.orders if each[0] == "load"] == [("load", name) for name in "abc"])


async def test_a_model_whose_clients_did_not_wait_for_it_leaves_for_another(tmp_path: Path) -> None:
    loaded = asyncio.Event()
    async with serving(tmp_path, {"a": [loaded]}, max_memory=8) as server:
        leaving = asyncio.create_task(server.use("a"))
        await until(lambda: server.states() == "a:loading")
        other = asyncio.create_task(server.use("b"))
        leaving.cancel()
        loaded.set()
        assert await other == "b"


async def test_a_model_in_use_does_not_leave(tmp_path: Path) -> None:
    async with serving(tmp_path, max_memory=8, max_load_wait=0.05) as server:
        held = await server.models.take("a")
        with pytest.raises(Unhealthy, match="b was not loaded within"):
            await server.use("b")
        server.models.give_back(held)
        await until(lambda: server.states() == "b:ready")  # its load goes on for those who ask again
        assert await server.use("b") == "b"


async def test_a_model_that_is_pinned_is_loaded_at_once_and_does_not_leave(tmp_path: Path) -> None:
    async with serving(tmp_path, pinned="b", keep_alive=0.0, max_memory=8, max_load_wait=0.05) as server:
        await until(lambda: server.states() == "b:ready")
        with pytest.raises(Unhealthy, match="a was not loaded within"):
            await server.use("a")


async def test_an_idle_model_leaves_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.router.models.models.LOOK_SECONDS", 0.005)
    async with serving(tmp_path, keep_alive=0.0) as server:
        held = await server.models.take("a")
        for _ in range(10):
            await asyncio.sleep(0.005)
        assert server.states() == "a:ready"
        server.models.give_back(held)
        await until(lambda: server.states() == "")


async def test_a_model_is_unloaded_when_its_requests_have_ended(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        held = await server.models.take("a")
        unloading = asyncio.create_task(server.models.unload("a"))
        await until(lambda: server.states() == "a:unloading")
        asking = asyncio.create_task(server.use("a"))
        await asyncio.sleep(0)
        assert not asking.done()
        server.models.give_back(held)
        await unloading
        assert await asking == "a"
        await until(lambda: server.orders == [("load", "a"), ("unload", "a"), ("load", "a")])
        with pytest.raises(ValidationError, match="is always loaded"):
            await server.models.unload("first")
        with pytest.raises(ModelNotFound):
            await server.models.unload("x")


async def test_adapters_are_those_that_clients_have_left_when_the_model_is_loaded_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        model = server.others["c"]
        service = await server.models.take("c")
        assert [each.name for each in model.adapters] == ["tuned"]
        service.adapters.recall([AdapterSource("later", tmp_path, "org/later")], ["tuned"])
        server.models.give_back(service)
        await server.models.unload("c")
        assert [each.name for each in model.adapters] == ["later"]
        again = await server.models.take("later")
        assert again is not service
        assert ([each.name for each in again.adapters], again.adapters.removed) == (["later"], ("tuned",))
        server.models.give_back(again)


async def test_an_alias_moves_without_a_lost_request(tmp_path: Path) -> None:
    async with serving(tmp_path, aliases={"chat": {"a": 1.0}}) as server:
        held = await server.models.take("chat")
        loaded = asyncio.Event()
        server.others["b"]._open = _opened_after(loaded)
        moving = asyncio.create_task(server.models.point("chat", {"b": 1.0}))
        await until(lambda: server.others["b"].state is State.LOADING)
        assert await server.use("chat") == "a"
        loaded.set()
        await moving
        assert await server.use("chat") == "b"
        assert server.others["a"].state is State.UNLOADING
        server.models.give_back(held)
        await until(lambda: server.states() == "b:ready")
        assert (tmp_path / "aliases").read_text() == '{"targets":{"chat":{"b":1.0}},"shadows":{}}'
        with pytest.raises(ValidationError, match="there is no model x"):
            await server.models.point("chat", {"x": 1.0})


def _opened_after(event: asyncio.Event) -> Any:
    async def open(config: RouterConfig, count: object, on_end: object) -> Parts:
        await event.wait()
        return Parts(config.name)

    return open


async def test_shards_of_the_router_before_are_found_or_ended(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as shard, socket.socket(socket.AF_UNIX) as dead:
        shard.bind(str(tmp_path / "b"))
        shard.listen()
        dead.bind(str(tmp_path / "a"))
        async with serving(tmp_path, clears=False) as server:
            await until(lambda: server.states() == "b:ready")
            assert server.orders == [("unload", "a"), ("unload", "c"), ("load", "b")]


async def test_a_model_that_is_being_loaded_is_unloaded_when_it_is(tmp_path: Path) -> None:
    loaded = asyncio.Event()
    async with serving(tmp_path, {"a": [loaded]}) as server:
        loading = asyncio.create_task(server.models.load("a"))
        await until(lambda: server.states() == "a:loading")
        unloading = asyncio.create_task(server.models.unload("a"))
        await asyncio.sleep(0)
        assert not unloading.done()
        loaded.set()
        await asyncio.gather(loading, unloading)
        assert server.states() == ""


async def test_a_model_that_is_pinned_is_loaded_again_after_a_failure_and_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room, name in ((models_room, "LOOK_SECONDS"), (model_room, "RETRY_SECONDS")):
        monkeypatch.setattr(room, name, 0.005)
    async with serving(tmp_path, {"b": [LimitError("too much")]}, pinned="b") as server:
        await until(lambda: server.states() == "b:ready")
        server.orders.clear()
        server.pipes["b"].send(Notice.GIVEN_UP)
        await until(lambda: server.orders == [("unload", "b"), ("load", "b")] and server.states() == "b:ready")


async def test_a_fault_of_the_server_in_a_load_fails_the_load_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, {"a": [KeyError("x")]}) as server:
        with pytest.raises(Unhealthy, match=r"a could not be loaded: the server has failed: KeyError\('x'\)"):
            await server.use("a")
        assert server.states() == "a:failed"
        assert caplog.records[-1].exc_info
        await until(lambda: server.orders == [("load", "a"), ("unload", "a")])


async def test_groups_elsewhere_that_are_away_hold_up_no_load(tmp_path: Path) -> None:
    async with serving(tmp_path, {"a": [asyncio.Event()]}, elsewhere="a") as server:
        waiting = asyncio.create_task(server.use("a"))
        await until(lambda: server.states() == "a:loading")
        assert await server.use("b") == "b"
        waiting.cancel()


async def test_the_lists_tell_of_models_and_aliases(tmp_path: Path) -> None:
    async with serving(tmp_path, aliases={"chat": {"a": 1.0}}) as server:
        await server.use("b")
        assert [(each.name, each.state, dict(each.targets)) for each in server.models.listed()] == [
            ("first", "ready", {}), ("a", "unloaded", {}), ("b", "ready", {}), ("c", "unloaded", {}),
            ("chat", None, {"a": 1.0})]
        assert [[adapter.name for adapter in each.adapters] for each in server.models.listed()] == [
            [], [], [], ["tuned"], []]
        assert await server.use("tuned") == "c"


async def test_orders_come_whole_however_the_pipe_cuts_them() -> None:
    pipe, orders = OrderPipe(), []
    pipe.follow(lambda order, model: orders.append((order, model)))
    for part in (b"lo", b"ad a\nunload b", b" c\n"):
        os.write(pipe.fd, part)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await until(lambda: orders == [("load", "a"), ("unload", "b c")])
    pipe.close()
