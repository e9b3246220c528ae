"""How long requests wait for a group that is away."""

import asyncio
from collections.abc import Callable


class Downtime:
    """Calls `expire` once the group has been away for `seconds`, which may be changed while it is."""

    def __init__(self, seconds: float, expire: Callable[[], None]) -> None:
        self.seconds = seconds
        self._expire = expire
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the group is away, and was awaited: also once that has taken too long."""
        return self._timer is not None

    def begin(self) -> None:
        """Begins, or begins anew: the group is away."""
        self.end()
        self._timer = asyncio.get_running_loop().call_later(self.seconds, self._expire)

    def extend(self) -> None:
        """Begins anew, if the group is away."""
        if self.has_begun:
            self.begin()

    def end(self) -> None:
        """Ends: the group is there, or nobody waits for it any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
