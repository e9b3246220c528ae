"""Holds the processes that render chat templates, and starts one anew when it came to its end."""

import json
import logging
import queue
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any, Self

from penstock.router.errors import RouterError, TemplateError
from penstock.system import child_environment
from penstock.system.json_objects import as_line

log = logging.getLogger(__name__)

SECONDS = 10.0
"""Seconds for one conversation, by the clock on the wall; the sandbox bounds its processor time to much less."""
NUM_PROCESSES = 2
_COMMAND = (sys.executable, "-P", "-m", "penstock.router.chat.sandbox")
_PIECE_BYTES = 1 << 16
_PAUSE_SECONDS = 0.1


class ProcessLost(Exception):
    """Raised when a renderer's process ended or did not answer, through no fault of the template as far as one sees."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The sandbox's findings about templates, by name."""

    variables: dict[str, frozenset[str]]
    """The variables that a template reads but does not set itself."""
    roles: dict[str, frozenset[str]]
    """The roles that a template compares a message's role with."""
    errors: dict[str, str]
    """Why a template can't be used."""

    @classmethod
    def told(cls, reply: dict[str, Any]) -> Self:
        """Reads a reply of the sandbox."""
        variables, roles = ({name: frozenset(found) for name, found in reply[key].items()}
                            for key in ("variables", "roles"))
        return cls(variables, roles, reply["errors"])


class RendererProcess(subprocess.Popen[bytes]):
    """A process that renders: it reads questions from a socket, and writes its answers into it.

    It is no pair of pipes made by Popen, which does not close the first where there is no file descriptor for the
    second.
    """

    def __init__(self) -> None:
        self.link, its = socket.socketpair()
        with its:
            try:
                super().__init__(_COMMAND, stdin=its.fileno(), stdout=its.fileno(), env=child_environment.for_text())
            except OSError:
                self.link.close()
                raise
        self.link.setblocking(False)


class Renderer:
    """Renders one text at a time, in a process that ends with this object."""

    def __init__(self, templates: dict[str, str], seconds: float = SECONDS) -> None:
        """Takes the sources of templates by name. A template's fault is told when it is used."""
        self._templates = templates
        self._seconds = seconds
        self._processes: list[RendererProcess] = []  # one, or none
        self._is_closed = False
        self._rendering = threading.Lock()
        weakref.finalize(self, _end_all, self._processes)

    def compile(self) -> Compiled:
        """Starts the process. Raises TemplateError if the templates bring it to its end, ProcessLost, and RouterError
        once it is closed."""
        _end_all(self._processes)
        self._processes.append(_start(time.monotonic() + self._seconds))
        self._refuse_if_closed()  # after the process is where `close` would have seen it
        return Compiled.told(self._ask(as_line(self._templates)))

    def answer(self, question: bytes) -> dict[str, Any]:
        """Answers a question as the sandbox takes it. A TemplateError has the template's own words for why it refuses;
        raises ProcessLost, too, and RouterError once it is closed."""
        with self._rendering:
            self._refuse_if_closed()
            return self._answer(question)

    def _answer(self, question: bytes) -> dict[str, Any]:
        if self._processes and (status := self._processes[0].poll()) is not None:
            log.warning("a template process has ended with status %d: a new one is started", status)
            _end_all(self._processes)
        if not self._processes:
            self.compile()
        return self._ask(question)

    def _ask(self, question: bytes) -> dict[str, Any]:
        process = self._processes[0]
        line = _exchange(process.link, question, time.monotonic() + self._seconds)
        self._refuse_if_closed()
        if line is None:
            _end_all(self._processes)
            raise ProcessLost(f"no answer within {self._seconds:g} s")
        if not line:
            status = process.wait()
            _end_all(self._processes)
            if status == -signal.SIGPROF:
                raise TemplateError("rendering took too long")
            raise ProcessLost(f"its process ended with status {status}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise TemplateError(reply["error"])
        return reply

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            _end_all(self._processes)
            raise RouterError("The conversation can't be rendered: its template is closed")

    def close(self) -> None:
        """Ends the process for good, also while another thread renders in it."""
        self._is_closed = True
        for process in [*self._processes]:
            process.kill()
        with self._rendering:  # its link is closed when nobody waits for it any more
            _end_all(self._processes)


class Renderers:
    """Some renderers of the same templates, each for one thread at a time; as many threads may use them."""

    def __init__(self, templates: dict[str, str], seconds: float = SECONDS) -> None:
        self.each = [Renderer(templates, seconds) for _ in range(NUM_PROCESSES)]
        self._free: queue.LifoQueue[Renderer] = queue.LifoQueue()
        for renderer in self.each:
            self._free.put(renderer)

    def compile(self) -> Compiled:
        """Starts a first process. Raises TemplateError if the templates bring it to its end."""
        try:
            return self.each[-1].compile()
        except ProcessLost as error:
            raise TemplateError(str(error)) from error

    def render(self, template: str, variables: dict[str, Any], source: str | None = None) -> str:
        """Renders the template of this name, or of this source; if that costs a process, once more in a new one.

        A TemplateError has the template's own words for why it refuses. Raises RouterError if both processes are lost.
        """
        which = {"template": template} if source is None else {"source": source}
        text: str = self._asked({**which, "variables": variables})["text"]
        return text

    def describe(self, source: str) -> Compiled:
        """Returns the sandbox's findings about a template that is none of those it has, under an empty name. Raises
        TemplateError if it can't be used, and as `render` does."""
        found = Compiled.told(self._asked({"source": source}))
        if found.errors:
            raise TemplateError(found.errors[""], "chat_template")
        return found

    def _asked(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            written = as_line(question)
        except (TypeError, ValueError, RecursionError) as error:
            raise TemplateError(str(error)) from error
        renderer = self._free.get()
        try:
            return renderer.answer(written)
        except ProcessLost as error:
            log.warning("a template process is lost, %s: a new one renders the conversation", error)
            return _once_more(renderer, written)
        finally:
            self._free.put(renderer)

    def close(self) -> None:
        """Ends all processes for good, at once."""
        for renderer in self.each:
            renderer.close()


def _once_more(renderer: Renderer, question: bytes) -> dict[str, Any]:
    try:
        return renderer.answer(question)
    except ProcessLost as error:
        raise RouterError(f"The conversation can't be rendered: {error}") from error


def _start(deadline: float) -> RendererProcess:
    """Starts a process, as soon as there are the file descriptors, tasks and memory for it."""
    while True:
        try:
            return RendererProcess()
        except OSError as error:
            if time.monotonic() >= deadline:
                raise ProcessLost(f"its process can't be started: {error}") from error
            time.sleep(_PAUSE_SECONDS)


def _exchange(link: socket.socket, question: bytes, deadline: float) -> bytes | None:
    """Writes a line to a process and reads one. Returns nothing if it has ended, None if the deadline passed.

    A process that is stopped takes no more than a socket holds, so the question is written as it is taken.
    """
    left, answer = memoryview(question), bytearray()
    with selectors.PollSelector() as selector:  # takes no file descriptor: there may be none
        selector.register(link, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while not answer.endswith(b"\n"):
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            try:
                for _, events in ready:
                    if events & selectors.EVENT_READ:
                        piece = link.recv(_PIECE_BYTES)
                        if not piece:
                            return b""
                        answer += piece
                    else:
                        left = left[link.send(left[:_PIECE_BYTES]):]
                        if not left:
                            selector.modify(link, selectors.EVENT_READ)
            except ConnectionError:  # it has ended
                return b""
    return bytes(answer)


def _end_all(processes: list[RendererProcess]) -> None:
    while processes:
        process = processes.pop()
        process.kill()
        process.wait()
        process.link.close()
