"""Everything that can go wrong with a request, and what the client is told.

    RouterError              500  what nobody foresaw: a fault of the server
    ├── ValidationError        422  the request breaks a rule
    ├── TemplateError          422  the chat template refuses the conversation, or there is none
    ├── ToolError              422  its tools are not as they must be
    ├── SuffixNotSupported     422  a completion with a suffix
    ├── TooManyPrompts         422  a completion of more prompts than are allowed
    ├── NoInstances            422  a Vertex AI request for nothing
    ├── InvalidAdapter         400  an adapter that can't be loaded
    ├── AdaptersFixed          403  adapters can't be loaded or unloaded while the server runs
    ├── AdapterNotFound        404  an adapter to be unloaded that nobody knows
    ├── AnotherAnswer          409  an answer is to be gone on with or repeated that this server would not give
    ├── Overloaded             429  no permit is free
    ├── GenerationError        424  the request failed while it ran
    │   └── KilledGroup        424  it was given up, for the group died whenever it ran
    ├── Unhealthy              503  no group can answer
    └── Dropped                499  the client left before its answers had ended

Words, statuses and messages are TGI's. Handlers raise; the one middleware of `penstock.router.app` maps to a JSON
body, and `penstock.router.api.http.sse` to an event once a stream has begun.
"""

from typing import Any, ClassVar


class RouterError(Exception):
    """The base of all errors that a client sees; `str(error)` is the message."""

    status: ClassVar[int] = 500
    error_type: ClassVar[str] = "internal"
    metric: ClassVar[str] = "generation"
    """The value of the `err` label of `tgi_request_failure`."""
    retry_after: ClassVar[int | None] = None
    """The seconds after which to try again, where that may help."""

    def __init__(self, message: str = "Internal server error") -> None:
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        """Has pickle take the message as it is, which most classes make of something else."""
        return _restored, (type(self), str(self))

    def body(self) -> dict[str, str]:
        """Returns the body of the error, as TGI has it."""
        return {"error": str(self), "error_type": self.error_type}


def _restored(kind: type[RouterError], message: str) -> RouterError:
    error = kind.__new__(kind)
    RouterError.__init__(error, message)
    return error


class ValidationError(RouterError):
    """The request breaks a rule; `rule` is the sentence that says which."""

    status = 422
    error_type = "validation"
    metric = "validation"

    def __init__(self, rule: str) -> None:
        super().__init__(f"Input validation error: {rule}")


class TemplateError(RouterError):
    """The conversation can't be rendered; `cause` is the template's own sentence, or `template not found`."""

    status = 422
    error_type = "template_error"
    metric = "template"

    def __init__(self, cause: str) -> None:
        super().__init__(f"Template error: {cause}")


class ToolError(RouterError):
    """The tools of a chat are not as they must be; the words are TGI's."""

    status = 422
    error_type = "tool_error"
    metric = "validation"

    def __init__(self, what: str) -> None:
        super().__init__(f"Tool error: {what}")


class SuffixNotSupported(RouterError):
    """A completion asks for a suffix; the words are TGI's."""

    status = 422
    error_type = "suffix not supported"
    metric = "validation"

    def __init__(self) -> None:
        super().__init__("Suffix is not supported and can be achieved by preprocessing the prompt.")


class TooManyPrompts(RouterError):
    """A completion has more prompts than are allowed; the words are TGI's."""

    status = 422
    error_type = "batch size exceeded"
    metric = "validation"

    def __init__(self, limit: int) -> None:
        super().__init__(f"Number of prompts exceeds the maximum allowed batch size of {limit}")


class NoInstances(RouterError):
    """A Vertex AI request has no instances; the words are TGI's."""

    status = 422
    error_type = "Input validation error"
    metric = "validation"

    def __init__(self) -> None:
        super().__init__("Input validation error")


class InvalidAdapter(RouterError):
    """An adapter can't be loaded under this name or from this folder; statuses of these three are vLLM's."""

    status = 400
    error_type = "invalid_adapter"
    metric = "validation"


class AdaptersFixed(RouterError):
    status = 403
    error_type = "adapters_fixed"
    metric = "validation"

    def __init__(self) -> None:
        super().__init__("adapters can't be loaded or unloaded while this server runs: that takes "
                         "--allow-runtime-adapters and an --api-key")


class AdapterNotFound(RouterError):
    status = 404
    error_type = "adapter_not_found"
    metric = "validation"


class AnotherAnswer(RouterError):
    """An answer that was begun elsewhere can't be had here; `why` is the sentence that says why not."""

    status = 409
    error_type = "another_answer"
    metric = "validation"

    def __init__(self, why: str) -> None:
        super().__init__(why)


class Overloaded(RouterError):
    status = 429
    error_type = "overloaded"
    metric = "overloaded"
    retry_after = 1

    def __init__(self) -> None:
        super().__init__("Model is overloaded")


class GenerationError(RouterError):
    status = 424
    error_type = "generation"
    metric = "generation"

    def __init__(self, cause: str) -> None:
        super().__init__(f"Request failed during generation: {cause}")


class KilledGroup(GenerationError):
    """The request was given up, because the group died whenever it ran."""


class Unhealthy(RouterError):
    status = 503
    error_type = "healthcheck"
    metric = "generation"
    retry_after = 5

    def __init__(self, reason: str = "unhealthy") -> None:
        super().__init__(reason)


class Dropped(RouterError):
    """The client has left; only metrics and traces are told."""

    status = 499
    error_type = "dropped"
    metric = "dropped"

    def __init__(self) -> None:
        super().__init__("The client has left")
