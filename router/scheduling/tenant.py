"""The tenant whose request a sequence is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tenant:
    """Tells who bears a request's key, and what was granted to all of its requests together."""

    name: str = ""
    share: int | None = None
    """Its share of the service among those that wait; None where no tenant has any, and all are served in one order."""


NOBODY = Tenant(share=1)
"""Has the requests of no tenant, where others have shares."""
