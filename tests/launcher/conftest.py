"""Parsing without starting anything, and a launcher whose shards and router are stand-ins."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.launcher import launch as launcher
from penstock.launcher.config import LauncherConfig
from penstock.launcher.options import OPTIONS
from penstock.router import logs
from tests.launcher.stand_in_processes import Launch

Parse = Callable[..., LauncherConfig]
Invoke = Callable[..., Result]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of whoever runs the tests say nothing."""
    for option in OPTIONS:
        for name in [option.envvar] if isinstance(option.envvar, str) else option.envvar or []:
            monkeypatch.delenv(name, raising=False)
    for name in ("LOG_LEVEL", "COMPUTE_TYPE", "AIP_PREDICT_ROUTE", "AIP_HEALTH_ROUTE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[LauncherConfig]:
    """What would have been launched."""
    configs: list[LauncherConfig] = []
    monkeypatch.setattr(launcher, "launch", lambda models: configs.append(models.first) or 0)
    monkeypatch.setattr(logs, "configure", lambda level, json_output, has_requests=True: None)
    return configs


@pytest.fixture
def invoke(started: list[LauncherConfig]) -> Invoke:
    """invoke("--port", "1", NUM_SHARD="2"): the command line and the environment."""
    return lambda *arguments, **variables: CliRunner().invoke(launcher.main, arguments, env=variables)


@pytest.fixture
def parse(invoke: Invoke, started: list[LauncherConfig]) -> Parse:
    """The same, for what must be accepted; --model-id is given."""
    def parse(*arguments: str, **variables: str) -> LauncherConfig:
        result = invoke("--model-id", "some/model", *arguments, **variables)
        assert result.exit_code == 0, result.output
        return started.pop()
    return parse


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., Launch]:
    """launch(*arguments, **behaviour) starts a launcher in a process of its own; `Launch` is a context manager."""
    return lambda *arguments, **behaviour: Launch(tmp_path, arguments, behaviour)
