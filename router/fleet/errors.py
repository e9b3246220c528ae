"""What the engine is told when a group fails."""


class FleetError(Exception):
    """The shards can't go on as a group; the message says which and why."""
