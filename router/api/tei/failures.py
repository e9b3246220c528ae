"""The words by which clients of TEI's routes know what has failed, where they are others than TGI's."""

from collections.abc import Mapping

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task

TYPES = {"generation": "backend", "healthcheck": "unhealthy"}


def error_types(facts: Facts) -> Mapping[str, str]:
    """Returns by TGI's types of errors those that a server has in their place: TEI's, unless its model generates."""
    return {} if Task.GENERATE in facts.tasks else TYPES
