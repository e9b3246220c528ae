"""`penstock bench` and its commands, which are imported when they run."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from penstock.bench import cli
from penstock.launcher.cli import main
from penstock.launcher.lazy_group import LazyGroup


def test_help_names_every_command():
    shown = CliRunner().invoke(main, ["bench", "--help"])
    assert shown.exit_code == 0
    for name in ("serve", "engine", "offline", "embed", "turns", "kernels"):
        assert f"\n  {name} " in shown.output
    assert "Measure a server, the engine or kernels." in CliRunner().invoke(main, ["--help"]).output
    kernels = CliRunner().invoke(main, ["bench", "kernels", "--help"])
    assert all(f"\n  {name} " in kernels.output for name in cli.KERNELS)


@pytest.mark.parametrize("words", [
    "serve", "load", "engine", "offline", "embed", "loads", "plan", "turns", "kernels attention",
    "kernels encoder", "kernels linear", "kernels sampling"])
def test_every_command_is_there(words):
    shown = CliRunner(catch_exceptions=False).invoke(main, ["bench", *words.split(), "--help"])
    assert (shown.exit_code, shown.output.startswith(f"Usage: main bench {words}")) == (0, True)


def test_an_unknown_command_is_refused():
    shown = CliRunner().invoke(main, ["bench", "gpus"])
    assert shown.exit_code == 2
    assert "No such command 'gpus'" in shown.output


def test_a_missing_package_is_named():
    group = LazyGroup(lazy={"engine": ("no_such_package:main", "Measure the engine.")})
    shown = CliRunner().invoke(group, ["engine"])
    assert (shown.exit_code, shown.output) == (
        1, "Error: engine needs the package no_such_package, which is not installed\n")


def test_the_help_of_a_group_imports_no_command():
    heavy = {"torch", "aiohttp", "penstock.bench.load.command", "penstock.bench.engine.command"}
    code = ("import sys; from penstock.launcher.cli import main; "
            f"main(['bench', '--help'], standalone_mode=False); print({heavy} & set(sys.modules))")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.endswith("set()\n")


