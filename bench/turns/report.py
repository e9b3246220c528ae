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
    """Prints the times to the first token by the cached tokens before the turn, in their order."""
    (few, short), (many, long) = ((number, median(times)) for number, times in found.items())
    print(f"first: {name}: first token of a turn behind {few} cached words after {1e3 * short:.2f} ms, behind {many} "
          f"after {1e3 * long:.2f} ms, × {long / short:.2f}", flush=True)


def show_parsers(router: float, parsers: Mapping[str, float]) -> None:
    """Prints the router's seconds for a token without a parser, and those that each parser adds."""
    added = ", ".join(f"{1e6 * seconds:.2f} µs ({100 * seconds / router:.1f} %) for {kind}"
                      for kind, seconds in parsers.items())
    print(f"parsers: the router takes {1e6 * router:.1f} µs for a token; parsers add {added}", flush=True)
