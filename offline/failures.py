"""From the errors of launcher and router to those that a program expects of a library."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from penstock.router.errors import RouterError
from penstock.router.text.encoding import TokenizerError


def as_error(error: Exception) -> Exception:
    """Returns a ValueError for what the caller has asked for and can't have, a RuntimeError for all else."""
    if isinstance(error, click.ClickException):
        return ValueError(error.message)
    if isinstance(error, RouterError) and error.metric in ("validation", "template"):
        return ValueError(error.reason)
    if isinstance(error, TokenizerError | ValueError):
        return ValueError(str(error))
    return RuntimeError(str(error))


@contextmanager
def translated() -> Iterator[None]:
    """Raises errors of the block in a program's own words."""
    try:
        yield
    except (RouterError, click.ClickException, TokenizerError) as error:
        raise as_error(error) from error
