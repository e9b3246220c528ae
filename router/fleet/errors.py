"""The error that tells the engine that a group has failed."""


class FleetError(Exception):
    """Raised when the shards can't go on as a group; the message says which shard is at fault and why."""
