"""How much KV memory the running sequences of a tenant may hold together, where that is bounded."""

from collections import Counter
from collections.abc import Iterable

from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.sequence import Sequence


class KvUse:
    """Counts the tokens of tenants that have a quota. Each running sequence counts as many as it may come to, so that
    none has to be preempted when it grows. One that is more than the quota by itself runs while no other of its tenant
    does, and the beams of a search that has begun run in any case, for they wait for each other. Those of the
    background do not count: they have only memory that nobody else wants."""

    def __init__(self, memory: KvMemory) -> None:
        self._memory = memory
        self._held: Counter[str] = Counter()

    def has_room(self, sequence: Sequence, before: Iterable[Sequence] = ()) -> bool:
        """Tells whether a waiting sequence is within the quota of its tenant, if those that come `before` it run."""
        tenant = sequence.tenant
        if tenant is None or tenant.kv_quota is None or sequence.is_background or self._memory.is_whole:
            return True
        if sequence.is_beam and len(sequence.tokens) > sequence.prompt_length:
            return True
        held = self._held[tenant.name] + sum(
            each.max_length for each in before if each.tenant is not None and each.tenant.name == tenant.name)
        return not held or held + sequence.max_length <= tenant.kv_quota.of(self._memory.capacity)

    def count(self, sequence: Sequence, sign: int) -> None:
        """Takes in that a sequence begins to hold memory (1), or lets go of it (-1)."""
        if sequence.tenant is not None and sequence.tenant.kv_quota is not None and not sequence.is_background:
            self._held[sequence.tenant.name] += sign * sequence.max_length
