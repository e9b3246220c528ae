"""The failures of a pipeline's steps that clients are told of."""

from typing import TypeVar

from penstock.router.errors import RouterError

AnyError = TypeVar("AnyError", bound=RouterError)


class StepFailed(RouterError):
    """A step could not do its work."""

    error_type = "pipeline"
    code = "step_failed"


class StepRefused(RouterError):
    """A step does not let the request, or its answer, pass."""

    status = 422
    error_type = "pipeline"
    metric = "validation"
    code = "step_refused"


def named(error: AnyError, step: str) -> AnyError:
    """Returns the error with the name of the step that it comes from before its sentence."""
    error.args = (f"{step}: {error}",)
    error.reason = f"{step}: {error.reason}"
    return error
