"""`python -m penstock.router.pipelines.process`: a process that runs an operator's function, for python_step.py.

One JSON line comes in and one goes out, in turn. The first brings `file`, `function`, `inputs`, `seconds` and `memory`,
and is answered by `{"error": sentence}` if the function can't take these inputs, or `{}`; each further one, the values
of the inputs, by `{"value": …}`, `{"refusal": sentence}` for a ValueError, or `{"error": sentence}`.
"""

import importlib.util
import inspect
import json
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

MOST = 1 << 22
"""The most bytes of a value."""
MAX_SENTENCE = 1000
UNNAMED = ""


def function_of(file: str, name: str, inputs: list[str]) -> Callable[..., Any]:
    """Returns a function of a file. Raises ValueError if it does not take these inputs."""
    spec = importlib.util.spec_from_file_location("steps", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} must be a Python file, whose name ends in .py")
    sys.path.insert(0, os.path.dirname(file))  # for what it imports beside it
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{file} has no function `{name}`")
    positional, named = ([None], {}) if inputs == [UNNAMED] else ([], dict.fromkeys(inputs))
    try:
        inspect.signature(function).bind(*positional, **named)
    except TypeError as error:
        raise ValueError(f"`{name}` of {file} does not take these inputs: {error}") from error
    return function


def answered(function: Callable[..., Any], values: dict[str, Any]) -> bytes:
    """Calls the function, and returns the line that tells of it."""
    try:
        made = function(values[UNNAMED]) if [*values] == [UNNAMED] else function(**values)
        line = json.dumps({"value": made}).encode()
        if len(line) > MOST:
            raise TypeError(f"it must return at most {MOST} bytes of JSON, and has returned {len(line)}")
    except ValueError as error:
        line = json.dumps({"refusal": str(error)[:MAX_SENTENCE]}).encode()
    except Exception as error:
        line = json.dumps({"error": _words(error)}).encode()
    return line + b"\n"


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_SENTENCE] if str(error) else type(error).__name__


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its stdin
    lines, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # for functions that print
    first = json.loads(lines.readline())
    try:
        function = function_of(first["file"], first["function"], first["inputs"])
    except Exception as error:
        sentence = str(error) if type(error) is ValueError else _words(error)
        answers.write(json.dumps({"error": sentence}).encode() + b"\n")
        return
    resource.setrlimit(resource.RLIMIT_AS, (first["memory"], first["memory"]))
    answers.write(b"{}\n")
    for line in lines:
        signal.alarm(math.ceil(first["seconds"]) + 1)  # ends it, should its parent be gone
        answer = answered(function, json.loads(line))
        signal.alarm(0)
        answers.write(answer)


if __name__ == "__main__":
    main()
