"""Reads a router's /metrics."""

from penstock.cluster.scaling import Load

WAITING, RUNNING = "tgi_queue_size", "tgi_batch_current_size"


def load_of(text: str) -> Load | None:
    """Returns what a router has to do, or None if its metrics do not tell."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in (WAITING, RUNNING):
            found[name] = float(value)
    if len(found) < 2:
        return None
    return Load(round(found[WAITING]), round(found[RUNNING]))


def total(loads: list[Load | None]) -> Load | None:
    """Returns what all routers have to do, or None if one of them does not tell."""
    if not loads or any(each is None for each in loads):
        return None
    known = [each for each in loads if each is not None]
    return Load(sum(each.num_waiting for each in known), sum(each.num_running for each in known))
