"""Failures of the servers elsewhere that a model's requests go to."""

from penstock.router.errors import RouterError


class SourceFailed(RouterError):
    """None of the servers has answered, or one has not to the end of its answer."""

    status = 502
    error_type = "source"
    code = "source_failed"
    retry_after = 5


class SourceTooSlow(SourceFailed):
    """The last one that was asked has not begun to answer in time."""

    status = 504
