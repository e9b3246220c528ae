"""The routes that a load can be sent to: their bodies, and what their answers say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt to send. The answer may have `output_tokens`."""

    text: str
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Part:
    """The content of one event, or of a whole answer in one piece; None for what is absent."""

    has_output: bool = False
    is_end: bool = False
    num_tokens: int | None = None
    prompt_tokens: int | None = None
    error: str | None = None


class Api(Protocol):
    """A way of asking for text. `counted_by` names what an event is where a server does not count tokens itself."""

    counted_by: str
    needs_model: bool

    def path(self, is_streamed: bool) -> str:
        """Returns the route, beginning with a slash."""

    def body(self, prompt: Prompt, model: str | None, is_streamed: bool, fields: Mapping[str, Any]) -> Json:
        """Returns the request's body, greedy unless `fields` say otherwise; they are added to the parameters."""

    def read(self, data: Json) -> Part:
        """Returns the content of an event or an answer."""


class Tgi:
    """TGI's /generate_stream, which sends an event for each token, and /generate."""

    counted_by = "events"
    needs_model = False

    def path(self, is_streamed: bool) -> str:
        return "/generate_stream" if is_streamed else "/generate"

    def body(self, prompt: Prompt, model: str | None, is_streamed: bool, fields: Mapping[str, Any]) -> Json:
        return {"inputs": prompt.text, "parameters": {
            "max_new_tokens": prompt.output_tokens, "details": True, **fields}}

    def read(self, data: Json) -> Part:
        if "error" in data:
            return Part(error=_error_text(data))
        details = data.get("details") or {}
        return Part("token" in data, data.get("generated_text") is not None, details.get("generated_tokens"),
                    details.get("input_length"))


class Completions:
    """OpenAI's /v1/completions."""

    counted_by = "chunks"
    needs_model = True

    def path(self, is_streamed: bool) -> str:
        return "/v1/completions"

    def body(self, prompt: Prompt, model: str | None, is_streamed: bool, fields: Mapping[str, Any]) -> Json:
        return {**self._prompt(prompt), "model": model, "max_tokens": prompt.output_tokens, "temperature": 0,
                **({"stream": True, "stream_options": {"include_usage": True}} if is_streamed else {}), **fields}

    def read(self, data: Json) -> Part:
        if "error" in data:
            return Part(error=_error_text(data))
        choices, usage = data.get("choices") or [], data.get("usage") or {}
        return Part(
            any(self._has_output(choice) for choice in choices),
            any(choice.get("finish_reason") for choice in choices),
            usage.get("completion_tokens"), usage.get("prompt_tokens"))

    def _prompt(self, prompt: Prompt) -> Json:
        return {"prompt": prompt.text}

    def _has_output(self, choice: Json) -> bool:
        return bool(choice.get("text"))


class Chat(Completions):
    """OpenAI's /v1/chat/completions; each prompt is a user's message."""

    def path(self, is_streamed: bool) -> str:
        return "/v1/chat/completions"

    def _prompt(self, prompt: Prompt) -> Json:
        return {"messages": [{"role": "user", "content": prompt.text}]}

    def _has_output(self, choice: Json) -> bool:
        """Tells whether there is text, thought or a tool's call: many servers' first chunk names the role alone."""
        said = choice.get("delta") or choice.get("message") or {}
        return any(value for name, value in said.items() if name != "role")


APIS: dict[str, Api] = {"tgi": Tgi(), "openai": Completions(), "openai-chat": Chat()}
"""The routes by the name that `--api` takes."""


def _error_text(data: Json) -> str:
    error = data["error"]
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
