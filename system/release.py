"""The version of this package, which answers, metrics and traces tell."""

from importlib.metadata import PackageNotFoundError, version


def find_version() -> str:
    """Returns the version of the installed package; `unknown` where a checkout runs that nobody installed."""
    try:
        return version("penstock")
    except PackageNotFoundError:
        return "unknown"


VERSION = find_version()
