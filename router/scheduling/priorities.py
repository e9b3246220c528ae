"""Who comes first: requests are ordered by when they came and by their priorities, and nobody waits for ever.

A request's place in the order is its arrival number plus `REQUESTS_PER_LEVEL` for each level of its priority; lower
ones come first. The place never changes, so it ages: of the requests that come after one, those of a priority lower by
d pass it only while they are fewer than `REQUESTS_PER_LEVEL` * d. At most `REQUESTS_PER_LEVEL` * (MAX_PRIORITY -
MIN_PRIORITY) younger requests come before any one. Those that find room where it finds none may pass it besides
(`admission`).

Those of the priority `BACKGROUND` are no part of that bound: all others come before them, whenever they come, and their
arrival numbers are counted apart.
"""

REQUESTS_PER_LEVEL = 16
"""Before how many requests that came earlier, and are of a priority by 1 higher, a request is put."""
MIN_PRIORITY, MAX_PRIORITY = -100, 100
"""Of requests of clients, whose priority is 0 if they name none."""
BACKGROUND = 2**40
"""The priority of requests that get only slots, blocks and time that nobody else waits for: lines of batches."""
MOMENT_SECONDS = 10.0
"""For how long others than the background are expected back after they have left."""


def place_of(age: int, priority: int) -> tuple[int, int]:
    """Returns the place in the order of a request that came as the one of number `age`. Of equals the older is first.
    """
    return age + REQUESTS_PER_LEVEL * priority, age
