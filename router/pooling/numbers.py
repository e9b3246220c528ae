"""How many texts one request may have, and all that are answered at once."""

from collections.abc import Sized

from penstock.router.errors import EmptyText, TooManyTexts
from penstock.router.limits import Limits

TEXTS_PER_PERMIT = 64
"""How many texts of a request one permit is for: so many times `max_concurrent_requests` may wait at once."""


def num_permits(num_texts: int, limits: Limits) -> int:
    """Returns how many permits a request for so many texts takes: never more than there are."""
    return min(-(-num_texts // TEXTS_PER_PERMIT), limits.max_concurrent_requests)


def check_number(texts: Sized, limits: Limits, name: str, num_others: int = 0) -> None:
    """Checks that there are texts in the field of this `name`, and with `num_others` of other fields not too many.
    Raises EmptyText and TooManyTexts."""
    if not len(texts):
        raise EmptyText(name)
    if (number := len(texts) + num_others) > limits.max_client_batch_size:
        raise TooManyTexts(number, limits.max_client_batch_size, name)
