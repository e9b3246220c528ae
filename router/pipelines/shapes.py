"""Where bodies of routes have the prompt that a pipeline takes, and the parameters of its last model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.router.errors import ValidationError

Body = dict[str, Any]
_OF_TGI = {"max_tokens": "max_new_tokens"}


@dataclass(frozen=True, slots=True)
class Shape:
    """The body of a route with a text in `field`. Parameters are fields beside it, or in an object of their own, for
    some under other `names`."""

    field: str
    parameters: str | None = None
    names: Mapping[str, str] | None = None
    takes_ids: bool = False
    model: str | None = None
    """The field that names the model, if there is one."""

    def read(self, body: Body) -> tuple[str, Any]:
        """Returns the prompt, and the messages of which it is the last. Raises ValidationError."""
        prompt = body.get(self.field)
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        if not isinstance(prompt, str):
            raise ValidationError(f"`{self.field}` must be one text, for that is what a pipeline takes")
        return prompt, [{"role": "user", "content": prompt}]

    def write(self, body: Body, prompt: Any, parameters: Mapping[str, Any]) -> Body:
        """Returns the body with another prompt, and with parameters that it does not have. Raises ValidationError for
        a prompt of token ids where texts alone are taken."""
        if not isinstance(prompt, str) and not self.takes_ids:
            raise ValidationError("the steps make token ids, which only /v1/completions takes", "unsupported_parameter")
        named = {(self.names or {}).get(name, name): value for name, value in parameters.items()
                 if self.names is None or (name, value) != ("temperature", 0)}  # which TGI has for nothing
        if self.parameters is None:
            return self._put({**named, **body}, prompt)
        given = body.get(self.parameters)
        if not named or not isinstance(given, dict | None):
            return self._put(body, prompt)
        return self._put({**body, self.parameters: {**named, **(given or {})}}, prompt)

    def _put(self, body: Body, prompt: Any) -> Body:
        return {**body, self.field: prompt}


class ChatShape(Shape):
    """The body of a chat, whose prompt is the text of the last message of its user."""

    def read(self, body: Body) -> tuple[str, Any]:
        messages: Any = body.get(self.field)
        place = _last(messages)
        text = None if place is None else _text(messages[place].get("content"))
        if text is None:
            raise ValidationError(f"`{self.field}` must have a message of a user with a text, which a pipeline takes")
        return text, messages

    def _put(self, body: Body, prompt: Any) -> Body:
        messages = [*body[self.field]]
        place = _last(messages)
        assert place is not None
        messages[place] = {**messages[place], "content": prompt}
        return {**body, self.field: messages}


def _last(messages: object) -> int | None:
    """Returns the place of the user's last message."""
    found = [place for place, message in enumerate(messages if isinstance(messages, list) else ())
             if isinstance(message, dict) and message.get("role") == "user"]
    return found[-1] if found else None


def _text(content: object) -> str | None:
    """Returns the text of a message's content; None if it has anything else."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    whole = bool(parts) and len(texts) == len(parts) and all(isinstance(text, str) for text in texts)
    return "".join(map(str, texts)) if whole else None


_TGI = Shape("inputs", "parameters", _OF_TGI)
_KSERVE = Shape("text_input", "parameters")
SHAPES: Mapping[str, Shape] = {
    **dict.fromkeys(("/generate", "/generate_stream", "/"), _TGI),
    "/v1/completions": Shape("prompt", takes_ids=True, model="model"),
    "/v1/chat/completions": ChatShape("messages", model="model"),
    **dict.fromkeys(("/v2/models/{model}/generate", "/v2/models/{model}/generate_stream"), _KSERVE),
}
"""By the paths of routes."""
