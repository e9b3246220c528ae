"""Numbers as sentences tell them."""

from collections.abc import Sequence


def seconds(time: float) -> str:
    """Returns a time with as many digits as matter."""
    if time < 0.001:
        return "less than 1 ms"
    if time < 1.0:
        return f"{time * 1000:.0f} ms"
    return f"{time:,.2f} s" if time < 10 else f"{time:,.1f} s" if time < 100 else f"{time:,.0f} s"


def number(count: int) -> str:
    return f"{count:,}"


def rate(count: int, time: float) -> str:
    """Returns how many of something that is a second."""
    each_second = count / max(time, 1e-6)
    return f"{each_second:,.0f} a second" if each_second >= 10 else f"{each_second:.1f} a second"


def joined(parts: Sequence[str]) -> str:
    """Returns parts as a list in a sentence."""
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)
