"""`python -m penstock.router.checks.process`: a process that checks answers, for checks/checker.py.

Patterns, schemas and functions may take any time and memory: both have bounds for this process, and nobody else waits
for it. One JSON line comes in and one goes out, in turn. The first brings `{"checks": [...], "memory": bytes}`, and is
answered by `{"error": sentence}` if a check can't be used, or `{}`; each further one, `{"text": ..., "facts": {...}}`,
by `{}` if the answer passes, or `{"check": name, "finding": sentence}`, with `"is_broken": true` if the check failed.
"""

import importlib.util
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

Check = Callable[[str, dict[str, Any]], str | None]
"""Returns the finding about a text, None if there is none."""
MAX_FINDING = 1000
"""The most characters of a finding."""


def regex(text: str, _: dict[str, Any], must: list[re.Pattern[str]], must_not: list[re.Pattern[str]]) -> str | None:
    """Looks for patterns."""
    if missing := next((pattern for pattern in must if not pattern.search(text)), None):
        return f"it must match {missing.pattern}"
    found = next((pattern for pattern in must_not if pattern.search(text)), None)
    return f"it must not match {found.pattern}" if found else None


def words(text: str, _: dict[str, Any], required: list[str], forbidden: re.Pattern[str] | None) -> str | None:
    """Looks for words."""
    if missing := next((word for word in required if not _of_words([word]).search(text)), None):
        return f"it must have `{missing}`"
    found = forbidden.search(text) if forbidden else None
    return f"it must not have `{found[0]}`" if found else None


def json_schema(text: str, _: dict[str, Any], validator: Any) -> str | None:
    """Reads JSON, and holds it to a schema."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"it must be JSON: {error}"
    errors = sorted(validator.iter_errors(value), key=lambda error: error.json_path)
    return f"{errors[0].json_path}: {errors[0].message}" if errors else None


def own(text: str, facts: dict[str, Any], function: Callable[[str, dict[str, Any]], Any]) -> str | None:
    """Asks a function of the operator's, which returns None, or a sentence about the answer."""
    finding = function(text, facts)
    if finding is not None and not isinstance(finding, str):
        raise TypeError(f"it must return None or a text, and has returned a {type(finding).__name__}")
    return finding


def compiled(check: dict[str, Any]) -> Check:
    """Makes a check of its description."""
    match check["kind"]:
        case "regex":
            patterns = ([re.compile(pattern) for pattern in check[name]] for name in ("must_match", "must_not_match"))
            must, must_not = patterns
            return partial(regex, must=must, must_not=must_not)
        case "words":
            return partial(words, required=check["required"],
                           forbidden=_of_words(check["forbidden"]) if check["forbidden"] else None)
        case "json_schema":
            import jsonschema  # type: ignore[import-untyped]  # an extra

            kind = jsonschema.validators.validator_for(check["schema"], jsonschema.Draft202012Validator)
            kind.check_schema(check["schema"])
            return partial(json_schema, validator=kind(check["schema"]))
    return partial(own, function=_function_of(check["file"], check["function"]))


def _function_of(file: str, name: str) -> Callable[[str, dict[str, Any]], Any]:
    sys.path.insert(0, os.path.dirname(file))  # for what stands beside it
    spec = importlib.util.spec_from_file_location("output_check", file)
    if spec is None or spec.loader is None:
        raise TypeError(f"{file} is no file of Python's")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise TypeError(f"{file} has no function `{name}`")
    return function  # type: ignore[no-any-return]


def _of_words(those: list[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, those))})(?!\w)", re.IGNORECASE)


class Checks:
    """All checks, in their order."""

    def __init__(self, descriptions: list[dict[str, Any]]) -> None:
        """Raises ValueError, which names the check that can't be used."""
        self._checks: list[tuple[str, str | None, Check]] = []
        for each in descriptions:
            try:
                self._checks.append((each["name"], each["behind"], compiled(each)))
            except Exception as error:
                raise ValueError(f"`{each['name']}`: {_words(error)}") from error

    def look(self, text: str, facts: dict[str, Any]) -> dict[str, Any]:
        """Returns the first finding."""
        for name, behind, check in self._checks:
            part = text if behind is None else text.rpartition(behind)[2]
            try:
                finding = check(part, facts)
            except Exception as error:
                return {"check": name, "finding": _words(error), "is_broken": True}
            if finding is not None:
                return {"check": name, "finding": finding[:MAX_FINDING]}
        return {}


def _words(error: Exception) -> str:
    message = getattr(error, "message", None) or str(error)
    return f"{type(error).__name__}: {message}"[:MAX_FINDING] if message else type(error).__name__


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its stdin
    lines, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # for functions that print
    first = json.loads(lines.readline())
    try:
        checks = Checks(first["checks"])
    except ValueError as error:
        answers.write(json.dumps({"error": str(error)}).encode() + b"\n")
        return
    resource.setrlimit(resource.RLIMIT_AS, (first["memory"], first["memory"]))
    answers.write(b"{}\n")
    for line in lines:
        question = json.loads(line)
        answers.write(json.dumps(checks.look(question["text"], question["facts"])).encode() + b"\n")


if __name__ == "__main__":
    main()
