"""Which rows of a stored tensor a rank reads."""

from collections.abc import Iterable, Iterator


def merged(starts: Iterable[int], size: int) -> Iterator[slice]:
    """Yields pieces of `size` rows each, those that follow one another as one slice."""
    begin = end = -1
    for start in starts:
        if start == end:
            end += size
            continue
        if end > begin:
            yield slice(begin, end)
        begin, end = start, start + size
    if end > begin:
        yield slice(begin, end)
