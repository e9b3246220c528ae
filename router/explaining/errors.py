"""The failures of explanations that clients are told of.

    NotRemembered          404  a request that never was, has not ended, is forgotten, or is another key's
"""

from penstock.router.errors import RouterError


class NotRemembered(RouterError):
    """No request with this id, or with an answer of this id, is remembered; `most` are."""

    status = 404
    error_type = "not_remembered"
    metric = "validation"
    code = "not_found"

    def __init__(self, id: str, most: int) -> None:
        which = (f"the latest {most} are remembered, each for its own key, once they have ended" if most else
                 "this server remembers none, for its --explained-requests is 0")
        super().__init__(f"No request `{id:.128}` is remembered, and none whose answer has this id: {which}")
