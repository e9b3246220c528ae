"""Prints the cost of agents' turns."""

from collections.abc import Mapping, Sequence
from statistics import median


def show_cache(name: str, usages: Sequence[tuple[int, int]]) -> None:
    """Prints the shares of the second turn and those behind it. Of each the tokens of the prompt are known, and those
    that came from the cache."""
    later = usages[1:]
    least = min(cached / length for length, cached in later)
    share = sum(cached for _, cached in later) / sum(length for length, _ in later)
    print(f"cache: {name}: prompts of {usages[0][0]} to {usages[-1][0]} tokens in {len(usages)} turns; from the second "
          f"on {100 * share:.1f} % came from the cache, of each turn at least {100 * least:.1f} %", flush=True)


def show_first(name: str, found: Mapping[int, Sequence[float]]) -> None:
    """Prints the times to the first token by the cached words before the turn, in their order: the medians, and the
    least ones, to which other work on the machine adds nothing."""
    (few, short), (many, long) = found.items()
    medians, least = (median(short), median(long)), (min(short), min(long))
    print(f"first: {name}: first token of a turn behind {few} cached words after {1e3 * medians[0]:.2f} ms (least "
          f"{1e3 * least[0]:.2f}), behind {many} after {1e3 * medians[1]:.2f} ms (least {1e3 * least[1]:.2f}), "
          f"× {medians[1] / medians[0]:.2f} (× {least[1] / least[0]:.2f})", flush=True)


def show_parsers(router: float, parsers: Mapping[str, float]) -> None:
    """Prints the router's seconds for a token without a parser, and those that each parser adds."""
    added = ", ".join(f"{1e6 * seconds:.2f} µs ({100 * seconds / router:.1f} %) for {kind}"
                      for kind, seconds in parsers.items())
    print(f"parsers: the router takes {1e6 * router:.1f} µs for a token; parsers add {added}", flush=True)
