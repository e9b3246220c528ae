"""A made-up setting needs its one field: it is an option, has a variable and bounds, and comes to router and shard."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click
import pytest
from pydantic import PositiveInt, TypeAdapter

from penstock.launcher.options import options_of
from penstock.router.config import RouterConfig
from penstock.shard.config import ShardConfig
from penstock.system.setting import Setting, Who
from penstock.system.settings import LIMITS, ServerSettings, told_to


@dataclass(frozen=True, kw_only=True)
class MadeUp(ServerSettings):
    thumbs: Annotated[PositiveInt, Setting(LIMITS, "Thumbs that a hand has.", Who.ROUTER | Who.SHARD)] = 2


@dataclass(frozen=True, kw_only=True)
class Router(MadeUp, RouterConfig):
    """The router's settings with it."""


@dataclass(frozen=True, kw_only=True)
class Shard(MadeUp, ShardConfig):
    """The shard's settings with it."""


COMMAND = click.Command("made-up", params=list(options_of(MadeUp)))


def parsed(*arguments: str) -> MadeUp:
    values = COMMAND.make_context("made-up", list(arguments)).params
    return MadeUp(**{name: value for name, value in values.items() if value is not None})


def test_it_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed().thumbs == 2
    assert parsed("--thumbs", "3").thumbs == 3
    monkeypatch.setenv("THUMBS", "4")
    assert parsed().thumbs == 4
    with pytest.raises(click.BadParameter, match="0 is not in the range x>=1"):
        parsed("--thumbs", "0")
    [option] = [option for option in options_of(MadeUp) if option.name == "thumbs"]
    record = option.get_help_record(click.Context(COMMAND))
    assert (option.group, record) == (
        LIMITS, ("--thumbs INTEGER", "Thumbs that a hand has.  [env var: THUMBS; default: 2; x>=1]"))


def test_it_comes_to_every_process() -> None:
    config = parsed("--thumbs", "3", "--api-key", "secret")
    of_router: dict[str, Any] = {
        "model_dir": Path("/m"), "tokenizer_json": Path("/t"), "shard_sockets": (), "listen_fd": 3, "notices_fd": 4,
        "log_level": "INFO", "compute_type": None, "vertex_predict_route": None, "vertex_health_route": None}
    router = Router(**told_to(Who.ROUTER, config), **of_router)
    assert "secret" not in router.to_json()
    text = TypeAdapter(Router).dump_json(router)
    assert TypeAdapter(Router).validate_json(text).thumbs == 3
    told = told_to(Who.SHARD, config)
    assert "api_key" not in told
    assert Shard(**told, model=Path("/m")).thumbs == 3
