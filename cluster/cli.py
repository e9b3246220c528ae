"""`penstock ray`: groups and routers on a Ray cluster."""

import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cluster.commands import check
from penstock.cluster.config import ClusterConfig, read

if TYPE_CHECKING:
    from penstock.cluster.reports import Status

POLL_SECONDS, ANSWER_SECONDS = 0.5, 30.0
NAMESPACE = "penstock-"
ADDRESS = click.option("--address", default="auto", show_default=True, envvar="RAY_ADDRESS",
                       help="The Ray cluster: HOST:PORT, or auto, which is the one that this machine is part of.")
NAME = click.argument("name", metavar="[NAME]", required=False)


@click.group()
def main() -> None:
    """Run groups and routers on a Ray cluster. docs/ray.md tells how."""


@main.command()
@click.argument("file", metavar="CLUSTER.YAML", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--wait/--no-wait", default=True, show_default=True,
              help="Wait until a router and the least number of groups take requests.")
def serve(file: Path, wait: bool) -> None:
    """Start what CLUSTER.YAML describes, or change what runs of it: its `scaling`."""
    config = read(file)
    check(config)
    _connect(config.address, NAMESPACE + config.name)
    keeper = _keep(config)
    if wait:
        click.echo("waiting for groups; all goes on if you leave")
        _wait_until_ready(config, keeper)
    _show(config.name, _answer(keeper.status.remote()))


@main.command()
@NAME
@ADDRESS
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def status(name: str | None, address: str, as_json: bool) -> None:
    """Show the router and the groups of the deployment NAME; of the only one, without a name."""
    name, keeper = _find(name, address)
    found = _answer(keeper.status.remote())
    if as_json:
        click.echo(json.dumps({"name": name, **dataclasses.asdict(found)}))
    else:
        _show(name, found)


@main.command()
@NAME
@ADDRESS
def down(name: str | None, address: str) -> None:
    """End the deployment NAME, or the only one: its router once its requests have finished, then its groups."""
    name, keeper = _find(name, address)
    import ray

    while True:
        _answer(keeper.end.remote())  # each time, for a keeper that has started again meanwhile does not know
        if _answer(keeper.status.remote()).is_over:
            break
        time.sleep(POLL_SECONDS)
    ray.kill(keeper, no_restart=True)
    click.echo(f"{name} has ended")


def _connect(address: str, namespace: str | None) -> Any:
    """Joins the cluster as a driver."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise click.ClickException("`penstock ray` needs Ray: pip install 'penstock[ray]'") from error
    try:
        ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise click.ClickException(f"there is no Ray cluster at {address}: {error}") from error
    return ray


def _keep(config: ClusterConfig) -> Any:
    """Has a keeper keep what is configured, in the place of one that keeps it with other bounds."""
    import ray

    from penstock.cluster.keeper import Keeper
    from penstock.cluster.places import KEEPER

    machines = sorted({str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]})
    if config.tls is None and len(machines) > 1:
        raise click.ClickException(f"`tls` is missing: the cluster has {len(machines)} machines, {', '.join(machines)},"
                                   " and shards are reached over a network by mutual TLS alone")
    if KEEPER in ray.util.list_named_actors():
        keeper = ray.get_actor(KEEPER)
        running: ClusterConfig = _answer(keeper.config.remote())
        if fixed := running.differences(config):
            raise click.ClickException(f"{', '.join(f'`{each}`' for each in fixed)} can't be changed while "
                                       f"{config.name} runs: end it with `penstock ray down {config.name}`, or give "
                                       "the other one another `name`")
        if running == config:
            return keeper
        ray.kill(keeper, no_restart=True)
        while KEEPER in ray.util.list_named_actors():
            time.sleep(POLL_SECONDS)
    return ray.remote(Keeper).options(
        name=KEEPER, lifetime="detached", num_cpus=0, max_restarts=-1, max_task_retries=-1,
    ).remote(config, machines[0])


def _wait_until_ready(config: ClusterConfig, keeper: Any) -> None:
    trouble = ""
    while True:
        found: Status = _answer(keeper.status.remote())
        ready = sum(all(state == "ready" for state, _ in parts) for parts in found.groups.values())
        if ready >= config.scaling.min_groups and found.router is not None and found.router[0] == "ready":
            return
        if found.trouble != trouble:
            trouble = found.trouble
            click.echo(trouble, err=True)
        time.sleep(POLL_SECONDS)


def _find(name: str | None, address: str) -> tuple[str, Any]:
    """Returns the name of a deployment and its keeper. Raises ClickException if there is none."""
    ray = _connect(address, None)
    from penstock.cluster.places import KEEPER

    names = sorted({each["namespace"].removeprefix(NAMESPACE) for each in ray.util.list_named_actors(True)
                    if each["namespace"].startswith(NAMESPACE)})
    if name is None and len(names) > 1:
        raise click.ClickException(f"there are several, name one: {', '.join(names)}")
    if not names or (name is not None and name not in names):
        raise click.ClickException("nothing runs on this cluster" if name is None else
                                   f"{name} does not run on this cluster; {', '.join(names) or 'nothing'} does")
    name = name or names[0]
    try:
        return name, ray.get_actor(KEEPER, namespace=NAMESPACE + name)
    except ValueError as error:
        raise click.ClickException(f"{name} runs without a keeper, whose exchange was interrupted: give its file to "
                                   "`penstock ray serve` once more") from error


def _answer(reference: Any) -> Any:
    import ray

    try:
        return ray.get(reference, timeout=ANSWER_SECONDS)
    except ray.exceptions.RayError as error:
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise click.ClickException(f"the keeper does not answer: {lines[-1].strip()}") from error


def _show(name: str, found: "Status") -> None:
    load = "" if found.load is None else f", {found.load.num_waiting} requests wait, {found.load.num_running} run"
    click.echo(f"{name}: {found.num_groups} groups wanted{load}")
    if found.router is not None:
        click.echo(f"  router: {' '.join(found.router)}".rstrip())
    for group, parts in sorted(found.groups.items()):
        click.echo(f"  group {group}: " + ", ".join(f"{state} {where}".rstrip() for state, where in parts))
    if found.trouble:
        click.echo(f"  the last trouble: {found.trouble}")
