"""The keeper's use of Ray: placement groups, actors in them, questions to actors."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayTaskError
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from penstock.cluster.config import ClusterConfig
from penstock.cluster.hosts import GroupHost, RouterHost

log = logging.getLogger(__name__)

Handle = Any
"""An actor, as Ray gives it."""
KEEPER = "keeper"
ROUTER = "router"
"""The router's actor, and what is reserved for it."""
FOR_EVER = -1


def part_name(group: str, rank: int) -> str:
    return f"group {group} {rank}"


def group_parts(names: Iterable[str]) -> dict[str, list[int]]:
    """Returns which parts of which groups are among the names of actors."""
    found: dict[str, list[int]] = {}
    for name in names:
        kind, _, rest = name.partition(" ")
        if kind == "group":
            group, _, rank = rest.partition(" ")
            found.setdefault(group, []).append(int(rank))
    return found


def make_group(config: ClusterConfig, name: str, machine: str) -> list[Handle]:
    """Has Ray place a group and make the actors of its parts, as soon as there is room for all of them."""
    group = config.group
    needs = _needs(group.cpus * group.shards_here, group.gpus * group.shards_here,
                   {each: amount * group.shards_here for each, amount in group.resources.items()})
    place = placement_group([needs] * group.nodes, group.placement, _place_name(config, name), lifetime="detached")
    return [_make(GroupHost, part_name(name, rank), place, rank, needs, 0, config, name, rank, machine)
            for rank in range(group.nodes)]


def make_router(config: ClusterConfig, machine: str) -> Handle:
    """Makes the actor of the router."""
    needs = _needs(config.router.cpus, 0, config.router.resources)
    place = _place(config, ROUTER) or placement_group(
        [needs], "PACK", _place_name(config, ROUTER), lifetime="detached")
    return _make(RouterHost, ROUTER, place, 0, needs, FOR_EVER, config, machine)


def end(handle: Handle) -> None:
    """Ends an actor for good. A child that still runs ends in order."""
    ray.kill(handle, no_restart=True)


def remove_place(config: ClusterConfig, name: str) -> None:
    """Gives back the resources that Ray has reserved for a group, or for the routers."""
    place = _place(config, name)
    if place is not None:
        remove_placement_group(place)


def reserved(config: ClusterConfig) -> set[str]:
    """Returns the names of all groups for which Ray has reserved something, or will."""
    prefix = _place_name(config, "")
    return {each["name"].removeprefix(prefix) for each in placement_group_table().values()
            if each["name"].startswith(prefix) and each["state"] != "REMOVED"}


class Questions:
    """The questions that actors have not answered yet. An actor may wait for its place or hang, so an answer may take
    long."""

    def __init__(self) -> None:
        self._asked: dict[str, Any] = {}

    def ask(self, handles: Mapping[str, Handle], seconds: float) -> tuple[dict[str, Any], dict[str, str]]:
        """Returns the reports of all actors that answer within so many seconds, and for those that are dead, why."""
        self._asked = {name: self._asked[name] if name in self._asked else handle.report.remote()
                       for name, handle in handles.items()}
        names = {reference: name for name, reference in self._asked.items()}
        if not names:
            return {}, {}
        answered, _ = ray.wait(list(names), num_returns=len(names), timeout=seconds)
        reports, dead = {}, {}
        for reference in answered:
            name = names[reference]
            del self._asked[name]
            try:
                reports[name] = ray.get(reference)
            except ActorDiedError as error:
                dead[name] = _cause(error)
            except (RayActorError, RayTaskError) as error:  # it starts again, or can't be reached for a while
                log.warning("%s does not answer: %s", name, _cause(error))
        return reports, dead


def _cause(error: Exception) -> str:
    """Returns the last line of an error of Ray's: the lines before are a traceback and ids."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _needs(cpus: float, gpus: float, resources: Mapping[str, float]) -> dict[str, float]:
    return {"CPU": cpus, **({"GPU": gpus} if gpus else {}), **resources}


def _make(
    kind: type, name: str, place: PlacementGroup, bundle: int, needs: Mapping[str, float], restarts: int,
    *arguments: Any,
) -> Handle:
    others = {each: amount for each, amount in needs.items() if each not in ("CPU", "GPU")}
    return ray.remote(kind).options(
        name=name, lifetime="detached", num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), resources=others,
        max_restarts=restarts,
        scheduling_strategy=PlacementGroupSchedulingStrategy(place, placement_group_bundle_index=bundle),
    ).remote(*arguments)


def _place_name(config: ClusterConfig, name: str) -> str:
    return f"penstock {config.name} {name}"


def _place(config: ClusterConfig, name: str) -> PlacementGroup | None:
    try:
        return get_placement_group(_place_name(config, name))
    except ValueError:
        return None
