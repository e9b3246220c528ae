"""Asks a server for the vectors of texts, in requests of several texts over several connections at once."""

import base64
import json
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

import click
import numpy as np

SECONDS = 600.0
Vectors = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, slots=True)
class Route:
    """A route of vectors: `body` writes a request for texts, and `read` takes the vectors out of an answer."""

    path: str
    body: Callable[[Sequence[str]], dict[str, Any]]
    read: Callable[[Any], list[Any]]


def _from_base64(answer: Any) -> list[Any]:
    return [np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in answer["data"]]


OPENAI = Route("/v1/embeddings", lambda texts: {"input": list(texts), "model": "-", "encoding_format": "base64"},
               _from_base64)
"""As OpenAI's own client asks."""
TEI = Route("/embed", lambda texts: {"inputs": list(texts)}, list)


def ask_all(port: int, route: Route, texts: Sequence[str], batch: int, connections: int) -> tuple[float, Vectors]:
    """Returns the seconds from the first request to the last answer, and a vector for each text. Raises ClickException
    for a refusal."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for begin in range(0, len(texts), batch):
        waiting.put(begin)
    bodies = {begin: json.dumps(route.body(texts[begin:begin + batch])) for begin in range(0, len(texts), batch)}
    answers: dict[int, bytes] = {}

    def work() -> None:
        connection = connect(port)
        while not waiting.empty():
            try:
                begin = waiting.get_nowait()
            except queue.Empty:
                break
            answers[begin] = ask(connection, route.path, bodies[begin])
        connection.close()

    start = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        for done in [pool.submit(work) for _ in range(connections)]:
            done.result()
    seconds = time.perf_counter() - start
    return seconds, np.array([vector for begin in sorted(answers) for vector in route.read(json.loads(answers[begin]))],
                             np.float32)


def connect(port: int) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", port, timeout=SECONDS)


def ask(connection: HTTPConnection, path: str, body: str) -> bytes:
    """Returns the answer's body. Raises ClickException for a refusal."""
    connection.request("POST", path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise click.ClickException(f"{path} answers {response.status}: {answer.decode(errors='replace'):.500}")
    return answer
