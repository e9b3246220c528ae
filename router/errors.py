"""Everything that can go wrong with a request, and what the client is told.

    RouterError              500  what nobody foresaw: a fault of the server
    ├── Unreadable             400  the body is none that can be read
    │   ├── TooSlow              408  it did not come in time
    │   ├── TooLarge             413  it is longer, or has more in it, than the server takes
    │   ├── WrongContentType     415  it is not said to be JSON, or it is compressed
    │   └── WrongShape           422  it is JSON, but a field is missing or has another type
    ├── ValidationError        422  the request breaks a rule
    │   ├── TooLong                422  the prompt has more tokens than the model takes
    │   ├── EmptyText              400  there is no text to make a vector or scores of
    │   ├── NotTokenized           422  the tokenizer refuses a text that a vector or scores are asked for
    │   ├── TooManyTexts           422  a request for vectors or scores has more texts than are allowed
    │   └── WrongTask              422  the model does something else
    │       └── WrongModel           424  the same, on TEI's routes
    ├── TemplateError          422  the chat template refuses the conversation, or there is none
    ├── ToolError              422  its tools are not as they must be
    ├── SuffixNotSupported     422  a completion with a suffix
    ├── TooManyPrompts         422  a completion of more prompts than are allowed
    ├── InvalidAdapter         400  an adapter that can't be loaded
    ├── Unauthorized           401  the API key is missing or wrong
    ├── AdaptersFixed          403  adapters can't be loaded or unloaded while the server runs
    ├── NoRoute                404  there is nothing at this path
    ├── ModelNotFound          404  a model that is to be described is not served
    ├── AdapterNotFound        404  an adapter to be unloaded that nobody knows
    ├── WrongMethod            405  there is something at this path, for other methods
    ├── AnotherAnswer          409  an answer is to be gone on with or repeated that this server would not give
    ├── Overloaded             429  no permit is free
    ├── GenerationError        424  the request failed while it ran
    │   └── KilledGroup        424  it was given up, for the group died whenever it ran
    ├── BudgetSpent, DeadlineTooShort, DeadlineTooNear, NoInstances, ModelsFixed, OutputRefused, SourceFailed,
    │   StepFailed, StepRefused, StoreFailure, TooFast  are in their rooms
    ├── Unhealthy              503  no group can answer
    └── Dropped                499  the client left before its answers had ended

Words, statuses and types are TGI's, codes OpenAI's. Handlers raise; the one middleware of `penstock.router.app` makes a
response of it, and `penstock.router.api.http.sse` an event once a stream has begun, in the shape of the route's API.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

_FIRST_NAME = re.compile(r"`([\w.\[\]-]+)`")


class RouterError(Exception):
    """The base of all errors that a client sees; `str(error)` is the message in TGI's words."""

    status: ClassVar[int] = 500
    error_type: ClassVar[str] = "internal"
    metric: ClassVar[str] = "generation"
    """The value of the `err` label of `tgi_request_failure`."""
    retry_after: int | None = None
    """The seconds after which to try again, where that may help."""
    headers: Mapping[str, str] = {}
    """Those that the error's status asks for."""
    code: str = "internal_error"
    """OpenAI's word for the error, or one in its manner."""
    param: str | None = None
    """The field that is wrong, as the client has written it."""

    def __init__(self, message: str = "Internal server error") -> None:
        super().__init__(message)
        self.reason = message
        """The message without the words that TGI puts before it."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Has pickle take the message as it is, which most classes make of something else."""
        return _restored, (type(self), str(self), self.__dict__)

    def body(self) -> dict[str, str]:
        """Returns the body of the error, as TGI has it."""
        return {"error": str(self), "error_type": self.error_type}


def _restored(kind: type[RouterError], message: str, facts: dict[str, Any]) -> RouterError:
    error = kind.__new__(kind)
    RouterError.__init__(error, message)
    error.__dict__.update(facts)
    return error


def _named_first(sentence: str) -> str | None:
    """Returns the field in backquotes that a sentence begins with, if it does."""
    found = _FIRST_NAME.match(sentence)
    return found[1] if found else None


class Unreadable(RouterError):
    """The body can't be read. TGI says so in plain text, in which the words are TGI's as far as its clients know
    them."""

    status = 400
    error_type = "unreadable"
    metric = "validation"
    code = "invalid_json"


class TooSlow(Unreadable):
    status = 408
    code = "request_timeout"

    def __init__(self) -> None:
        super().__init__("Failed to buffer the request body: it did not come in time")


class TooLarge(Unreadable):
    status = 413
    code = "request_too_large"

    def __init__(self, fault: str = "length limit exceeded") -> None:
        super().__init__(f"Failed to buffer the request body: {fault}")


class WrongContentType(Unreadable):
    status = 415
    code = "unsupported_content_type"

    def __init__(self, message: str = "Expected request with `Content-Type: application/json`") -> None:
        super().__init__(message)


class WrongShape(Unreadable):
    """A field is missing, or is not what it must be; `reason` is the sentence that says which."""

    status = 422

    def __init__(self, reason: str, code: str, param: str | None) -> None:
        super().__init__(f"Failed to deserialize the JSON body into the target type: {reason}")
        self.reason = reason
        self.code = code
        self.param = param


class ValidationError(RouterError):
    """The request breaks a rule; `rule` is the sentence that says which, beginning with the field in backquotes.

    `param` is the field where the sentence begins otherwise.
    """

    status = 422
    error_type = "validation"
    metric = "validation"

    def __init__(self, rule: str, code: str = "invalid_value", param: str | None = None) -> None:
        super().__init__(f"Input validation error: {rule}")
        self.reason = rule
        self.code = code
        self.param = param or _named_first(rule)


class TooLong(ValidationError):
    """The prompt has `given` tokens, or more, and may have no more than `most`, so that there is room for an answer."""

    def __init__(self, rule: str, given: int, most: int) -> None:
        super().__init__(rule, "context_length_exceeded")
        self.given = given
        self.most = most


class EmptyText(ValidationError):  # status, type and words of these three are TEI's
    status = 400
    error_type = "empty"

    def __init__(self, name: str) -> None:
        super().__init__(f"`{name}` cannot be empty", "empty_string")


class NotTokenized(ValidationError):
    error_type = "tokenizer"

    def __init__(self, cause: str, name: str) -> None:
        super().__init__(f"tokenizer error {cause}", param=name)


class TooManyTexts(ValidationError):
    def __init__(self, given: int, most: int, name: str) -> None:
        super().__init__(f"batch size {given} > maximum allowed batch size {most}", "array_above_max_length", name)


class WrongTask(ValidationError):
    """The model does not do what is asked for, which `lack` says; `paths` are those of what it does."""

    def __init__(self, lack: str, paths: Sequence[str]) -> None:
        super().__init__(f"the model {lack}; it has {', '.join(paths)}", "model_not_supported", "model")


class WrongModel(WrongTask):  # TEI finds it where it computes
    status = 424
    error_type = "backend"


class TemplateError(RouterError):
    """The conversation can't be rendered because of the field `param`; `cause` is the template's own sentence, or
    `template not found`."""

    status = 422
    error_type = "template_error"
    metric = "template"
    code = "invalid_value"

    def __init__(self, cause: str, param: str = "messages") -> None:
        super().__init__(f"Template error: {cause}")
        self.param = param


class ToolError(RouterError):
    """The tools of a chat, or the field `param`, are not as they must be; the words are TGI's."""

    status = 422
    error_type = "tool_error"
    metric = "validation"
    code = "invalid_value"

    def __init__(self, what: str, param: str = "tools") -> None:
        super().__init__(f"Tool error: {what}")
        self.reason = what
        self.param = param


class SuffixNotSupported(RouterError):
    """A completion asks for a suffix; the words are TGI's."""

    status = 422
    error_type = "suffix not supported"
    metric = "validation"
    code = "unsupported_parameter"
    param = "suffix"

    def __init__(self) -> None:
        super().__init__("Suffix is not supported and can be achieved by preprocessing the prompt.")


class TooManyPrompts(RouterError):
    """A completion has more prompts than are allowed; the words are TGI's."""

    status = 422
    error_type = "batch size exceeded"
    metric = "validation"
    code = "array_above_max_length"
    param = "prompt"

    def __init__(self, limit: int) -> None:
        super().__init__(f"Number of prompts exceeds the maximum allowed batch size of {limit}")


class InvalidAdapter(RouterError):
    """An adapter can't be loaded under this name or from this folder; statuses of these three are vLLM's."""

    status = 400
    error_type = "invalid_adapter"
    metric = "validation"
    code = "invalid_adapter"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param or _named_first(message)


class Unauthorized(RouterError):
    """TGI says this by the status alone."""

    status = 401
    error_type = "unauthenticated"
    metric = "validation"
    code = "invalid_api_key"
    headers: Mapping[str, str] = {"www-authenticate": "Bearer"}

    def __init__(self) -> None:
        super().__init__("The API key is missing or wrong")


class AdaptersFixed(RouterError):
    status = 403
    error_type = "adapters_fixed"
    metric = "validation"
    code = "adapters_fixed"

    def __init__(self) -> None:
        super().__init__("adapters can't be loaded or unloaded while this server runs: that takes "
                         "--allow-runtime-adapters and an --api-key")


class NoRoute(RouterError):
    """TGI says this by the status alone."""

    status = 404
    error_type = "no_route"
    metric = "validation"
    code = "unknown_url"

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"There is no route {method} {path:.200}")


class ModelNotFound(RouterError):
    """A model that is neither the one served nor one of its adapters."""

    status = 404
    error_type = "model_not_found"
    metric = "validation"
    code = "model_not_found"
    param = "model"

    def __init__(self, name: str) -> None:
        super().__init__(f"The model `{name:.200}` does not exist")


class AdapterNotFound(RouterError):
    """An adapter that was named by the field `param`."""

    status = 404
    error_type = "adapter_not_found"
    metric = "validation"
    code = "model_not_found"

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class WrongMethod(RouterError):
    """TGI says this by the status alone. `allowed` lists the methods that the path is for."""

    status = 405
    error_type = "wrong_method"
    metric = "validation"
    code = "method_not_supported"

    def __init__(self, method: str, path: str, allowed: str) -> None:
        super().__init__(f"{path:.200} is for {allowed}. Given: {method:.40}")
        self.headers = {"allow": allowed}


class AnotherAnswer(RouterError):
    """An answer that was begun elsewhere can't be had here; the message is the sentence that says why not."""

    status = 409
    error_type = "another_answer"
    metric = "validation"
    code = "another_answer"


class Overloaded(RouterError):
    status = 429
    error_type = "overloaded"
    metric = "overloaded"
    code = "rate_limit_exceeded"
    retry_after = 1

    def __init__(self) -> None:
        super().__init__("Model is overloaded")


class GenerationError(RouterError):
    status = 424
    error_type = "generation"
    code = "generation_failed"

    def __init__(self, cause: str) -> None:
        super().__init__(f"Request failed during generation: {cause}")


class KilledGroup(GenerationError):
    """The request was given up, because the group died whenever it ran."""


class Unhealthy(RouterError):
    status = 503
    error_type = "healthcheck"
    code = "service_unavailable"
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
