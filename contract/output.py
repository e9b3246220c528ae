"""The kinds of what a row of a plan yields."""

from enum import Enum


class Output(Enum):
    """Tells what a row yields."""

    NONE = 0
    SAMPLE = 1
    POOL = 2
