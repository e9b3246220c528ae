"""Reads a router's /metrics."""

from penstock.cluster.scaling import Load

WAITING, RUNNING = "tgi_queue_size", "tgi_batch_current_size"


def load_of(text: str) -> Load | None:
    """Returns the load of a router, or None if its metrics do not have it."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in (WAITING, RUNNING):
            found[name] = float(value)
    if len(found) < 2:
        return None
    return Load(round(found[WAITING]), round(found[RUNNING]))
