"""The tenant whose request a sequence is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KvQuota:
    """A part of the KV memory, in tokens or in percent."""

    number: int
    is_percent: bool

    def of(self, capacity: int) -> int:
        """Returns how many tokens that is of so many."""
        return capacity * self.number // 100 if self.is_percent else self.number


@dataclass(frozen=True, slots=True)
class Tenant:
    """Tells who bears a request's key, and what was granted to all of its requests together."""

    name: str = ""
    share: int | None = None
    """Its share of the service among those that wait; None where no tenant has any, and all are served in one order."""
    kv_quota: KvQuota | None = None
    """How much KV memory its running sequences may hold."""


NOBODY = Tenant(share=1)
"""Has the requests of no tenant, where others have shares."""
