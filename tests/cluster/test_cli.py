"""`penstock ray` before it has reached a cluster, and where there is no keeper."""

from importlib.util import find_spec
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner

from penstock.launcher.cli import main

WITHOUT_RAY = pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")


def test_help_needs_no_ray():
    told = CliRunner().invoke(main, ["ray", "--help"])
    assert told.exit_code == 0
    assert [line.split()[0] for line in told.output.partition("Commands:\n")[2].splitlines()] == [
        "down", "serve", "status"]


@WITHOUT_RAY
@pytest.mark.parametrize("command", ["status", "down"])
def test_without_ray_it_says_what_to_install(command):
    told = CliRunner().invoke(main, ["ray", command])
    assert (told.exit_code, told.output) == (1, "Error: `penstock ray` needs Ray: pip install 'penstock[ray]'\n")


@WITHOUT_RAY
def test_a_right_file_needs_ray(tmp_path: Path):
    told = served(tmp_path, "name: demo\nmodel: /model\n")
    assert told == (1, "Error: `penstock ray` needs Ray: pip install 'penstock[ray]'\n")


def test_a_wrong_file_is_refused_before_ray_is_needed(tmp_path: Path):
    status, told = served(tmp_path, "name: demo\n")
    assert (status, told.partition("cluster.yaml: ")[2]) == (2, "`model`: Field required\n")
    status, told = served(tmp_path, "name: demo\nmodel: /model\ngroup: {options: {threds: 2}}\n")
    assert (status, told.partition(".")[0]) == (2, "Invalid argument: `group")
    assert "`group.options`: No such option '--threds'" in told


def actors(ray: MagicMock, *found: tuple[str, str]) -> None:
    """Has the cluster have actors of these names and namespaces, none of which is a keeper."""
    ray.util.list_named_actors = lambda _: [{"name": name, "namespace": namespace} for name, namespace in found]
    ray.get_actor.side_effect = ValueError


@pytest.mark.parametrize("command", ["status", "down"])
def test_groups_without_a_keeper_are_no_secret(ray, command):
    actors(ray, ("router", "penstock-demo"), ("group demo-1 0", "penstock-demo"))
    told = CliRunner().invoke(main, ["ray", command])
    assert (told.exit_code, told.output) == (1, (
        "Error: demo runs without a keeper, whose exchange was interrupted: give its file to `penstock ray serve` once "
        "more\n"))


def test_actors_of_others_are_none_of_ours(ray):
    actors(ray, ("router", "others"))
    told = CliRunner().invoke(main, ["ray", "status"])
    assert (told.exit_code, told.output) == (1, "Error: nothing runs on this cluster\n")


def served(folder: Path, content: str) -> tuple[int, str]:
    """The exit code and the output of `penstock ray serve` with a file."""
    file = folder / "cluster.yaml"
    file.write_text(content)
    told = CliRunner().invoke(main, ["ray", "serve", str(file)])
    return told.exit_code, told.output
