"""The failure of a request to the routes of clouds."""

from penstock.router.errors import RouterError


class NoInstances(RouterError):
    """A Vertex AI request has no instances; the words are TGI's."""

    status = 422
    error_type = "Input validation error"
    metric = "validation"
    code = "empty_array"
    param = "instances"

    def __init__(self) -> None:
        super().__init__("Input validation error")
