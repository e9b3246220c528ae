"""Holds the process that renders chat templates, and starts it anew when a template has brought it to its end."""

import json
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock.router.errors import TemplateError

_COMMAND = (sys.executable, "-P", "-m", "penstock.router.chat.sandbox")


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the sandbox has found out about templates, by name."""

    variables: dict[str, frozenset[str]]
    """The variables that a template reads but does not set itself."""
    errors: dict[str, str]
    """Why a template can't be used."""


class Renderer:
    """Renders one text at a time, in a process that ends with this object; several threads may use it."""

    def __init__(self, templates: dict[str, str]) -> None:
        """Takes the sources of templates by name. What is wrong with one is told when it is used."""
        self._templates = templates
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []  # one, or none
        weakref.finalize(self, _end_all, self._processes)

    def compile(self) -> Compiled:
        """Starts the process. Raises TemplateError if the templates bring it to its end."""
        with self._lock:
            return self._compile()

    def render(self, template: str, variables: dict[str, Any]) -> str:
        """Renders the template of this name. A TemplateError has the template's own words for why it refuses."""
        try:
            question = json.dumps({"template": template, "variables": variables})
        except (TypeError, ValueError, RecursionError) as error:
            raise TemplateError(str(error)) from error
        with self._lock:
            if not self._processes or self._processes[0].poll() is not None:
                self._compile()
            reply = self._ask(question)
        if "error" in reply:
            raise TemplateError(reply["error"])
        text: str = reply["text"]
        return text

    def _compile(self) -> Compiled:
        _end_all(self._processes)
        self._processes.append(subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        reply = self._ask(json.dumps(self._templates))
        if "error" in reply:
            raise TemplateError(reply["error"])
        return Compiled({name: frozenset(found) for name, found in reply["variables"].items()}, reply["errors"])

    def _ask(self, question: str) -> dict[str, Any]:
        process = self._processes[0]
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(question.encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise TemplateError(_ending(process.wait()))
        reply: dict[str, Any] = json.loads(line)
        return reply


def _ending(status: int) -> str:
    if status == -signal.SIGPROF:
        return "rendering took too long"
    return f"rendering ended its process with status {status}"


def _end_all(processes: list[subprocess.Popen[bytes]]) -> None:
    while processes:
        process = processes.pop()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):  # what it did not read
                pipe.close() if pipe else None
