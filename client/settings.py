"""The settings of a client: servers, limits, and the bodies of its calls."""

import socket
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from penstock.client.call import TokenIdOf
from penstock.client.patience import Patience

CONNECT_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""How long a stream that has begun may be silent before its connection counts as broken: servers send a comment every
15 seconds."""


def _socket_options() -> list[tuple[int, int, int]]:
    """Returns options by which the system notices within 35 s that the other machine is gone, where it has them."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    # Keep-alives are sent only while nothing waits for its receipt; what does is given up by the time of the user.
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 35_000)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


SOCKET_OPTIONS = _socket_options()
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
WHOLE_TIMEOUT = httpx2.Timeout(None, connect=CONNECT_SECONDS)
STREAM_TIMEOUT = httpx2.Timeout(SILENT_SECONDS, read=None, connect=CONNECT_SECONDS, pool=None)
"""Until a stream's headers have come, which a server with `--strict-streaming-errors` sends with the first event."""


def limit_silence(response: httpx2.Response) -> None:
    """Has the rest of a response, whose headers have come, break off when it is silent for too long."""
    response.request.extensions["timeout"]["read"] = SILENT_SECONDS


class Settings:
    """Which servers a client asks, with which headers, and for how long it looks for one. Calls begin with the server
    that answered last."""

    def __init__(
        self, urls: str | Sequence[str], api_key: str | None, max_downtime: float, headers: Mapping[str, str]
    ) -> None:
        self._urls = [url.rstrip("/") for url in ([urls] if isinstance(urls, str) else urls)]
        if not self._urls or not all(url.startswith(("http://", "https://")) for url in self._urls):
            raise ValueError(f"`urls` must be one or several that begin with http:// or https://. Given: {urls!r}")
        self.headers = {**headers, **({} if api_key is None else {"authorization": f"Bearer {api_key}"})}
        self._max_downtime = max_downtime
        self._first = 0

    def patience(self) -> Patience:
        """Returns the patience of a new call."""
        return Patience(self._urls, self._max_downtime, self._first)

    def answered(self, patience: Patience) -> None:
        """Notes which server has answered."""
        self._first = self._urls.index(patience.url)


def generate_body(inputs: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of TGI's routes; without parameters an answer is sampled, as in TGI."""
    return {"inputs": inputs, **({"parameters": dict(parameters)} if parameters else {})}


def token_id_of_tgi(content: Any) -> int | None:
    """Returns the token of an event of TGI's stream."""
    return int(content["token"]["id"])


def token_ids_of_openai(body: Mapping[str, Any]) -> TokenIdOf:
    """Returns the function that finds the tokens of a stream of OpenAI's routes. Behind tokens that may be calls of
    tools, or follow a prompt that is told, too, or are of several answers, no server goes on."""
    prompt = body.get("prompt") or ""
    has_prompts = not isinstance(prompt, str) and len(prompt) > 1 and not isinstance(prompt[0], int)
    has_several = (body.get("n") or 1) > 1 or has_prompts
    return _no_token_id if body.get("tools") or body.get("echo") or has_several else _token_id_of_openai


def _no_token_id(content: Any) -> int | None:
    return None


def _token_id_of_openai(content: Any) -> int | None:
    """Returns the token of a chunk, if it is asked for by `return_token_ids` and there is one answer."""
    choices = content.get("choices") or [{}]
    ids = choices[0].get("token_ids") or []
    return int(ids[0]) if len(ids) == 1 and not choices[0].get("index") else None
