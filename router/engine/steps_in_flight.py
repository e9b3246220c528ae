"""The steps that were sent to a group and whose results have not come."""

import time
from collections import deque

from penstock.contract.plan import Plan

UNUSUAL = 10.0
"""How many times as long as lately a step must take to be late."""
FORGETTING = 0.99
"""The weight that each result leaves to the times of earlier ones."""


class StepsInFlight(deque[Plan]):
    """Holds their plans, the oldest first, and knows since when none has come back."""

    def __init__(self) -> None:
        super().__init__()
        self._advanced_at = 0.0
        """When the last result came, or the first plan was sent while none was in flight; of `time.monotonic`."""
        self._longest = 0.0

    def append(self, plan: Plan) -> None:
        if not self:
            self._advanced_at = time.monotonic()
        super().append(plan)

    def popleft(self) -> Plan:
        now = time.monotonic()
        self._longest = max(FORGETTING * self._longest, now - self._advanced_at)
        self._advanced_at = now
        return super().popleft()

    def are_late(self, limit: float) -> bool:
        """Tells whether no result has come for more than `limit` seconds, and for far longer than lately."""
        return bool(self) and self.seconds > max(limit, UNUSUAL * self._longest)

    @property
    def seconds(self) -> float:
        """The seconds since a result came, or since there is one to wait for."""
        return time.monotonic() - self._advanced_at
