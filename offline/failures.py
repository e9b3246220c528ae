"""From the errors of launcher and router to those that a program expects of a library."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from penstock.offline.names import in_given_words
from penstock.router.errors import RouterError
from penstock.router.text.encoding import TokenizerError


class NoShards(Exception):
    """Raised when the shards can't be started, or not again; the message has their own last words."""


class Refused(NoShards):
    """Raised when the shards refuse the settings or the checkpoint."""


def as_error(error: Exception) -> Exception:
    """Returns a ValueError for a request that can't be answered, a TypeError as it is, and a RuntimeError for all other
    errors."""
    if isinstance(error, TypeError):
        return error
    if isinstance(error, click.ClickException):
        return ValueError(in_given_words(error.message))
    if isinstance(error, RouterError) and error.metric in ("validation", "template"):
        return ValueError(in_given_words(error.reason))
    kind = ValueError if isinstance(error, TokenizerError | ValueError | Refused) else RuntimeError
    return kind(in_given_words(str(error)))


@contextmanager
def translated() -> Iterator[None]:
    """Raises errors of the block in a program's own words."""
    try:
        yield
    except (RouterError, click.ClickException, TokenizerError) as error:
        raise as_error(error) from error
