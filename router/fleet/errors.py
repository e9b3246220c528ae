"""The errors that tell the engine that a group has failed, or that its shards can't use an adapter."""


class FleetError(Exception):
    """Raised when the shards can't go on as a group; the message says which shard is at fault and why. Where it
    `is_outside` what they ran, as a cut wire is, no request can be to blame."""

    def __init__(self, message: str, is_outside: bool = False) -> None:
        super().__init__(message)
        self.is_outside = is_outside


class OtherFacts(RuntimeError):
    """Raised when a group comes back as another one, such as one with another model or number of shards."""


class AdapterRefusedError(Exception):
    """Raised when a shard can't use an adapter; the message is its sentence. No shard keeps anything of it."""
