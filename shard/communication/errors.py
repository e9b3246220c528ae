"""The faults between ranks."""


class PeerLost(RuntimeError):
    """Raised when another rank is gone, does not come, or has said nothing for too long."""
