"""`python -m penstock.router.chat.sandbox`: a process that renders chat templates, for chat/renderer.py.

A template is a program that comes with a model's files. Jinja's sandbox keeps it away from Python's insides, and what
no sandbox within a process can bound, its time and its memory, the kernel bounds for this one.

One JSON line comes in and one goes out, in turn. The first brings the templates, `{name: source}`, and is answered by
`{"variables": {name: [...]}, "roles": {name: [...]}, "errors": {name: message}}`; each further one, `{"template": name,
"variables": {...}}`, by `{"text": ...}` or `{"error": message}`. One with a `source` means the template of that source:
without variables it asks what the first one asks of others, with an empty name.
"""

import json
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from penstock.system.json_objects import as_line

SECONDS = 1.0
"""Seconds of processor time for one conversation; the kernel ends the process after it."""
MEMORY = 1 << 30
"""The most bytes of address space."""
MAX_GIVEN = 8
"""How many templates of requests are kept compiled."""
MAX_CHARACTERS = 1 << 25
"""The longest rendered text."""


class Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks what a model is trained on. It is rendered as if unmarked."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class Arguments(dict[str, Any]):
    """The arguments of a call. Some templates read an object, others write a text: this is an object, and where a text
    is written it is JSON."""

    def __init__(self, arguments: str | dict[str, Any]) -> None:
        super().__init__(json.loads(arguments) if isinstance(arguments, str) else arguments)
        self._text = arguments if isinstance(arguments, str) else tojson(arguments)

    def __str__(self) -> str:
        return self._text

    def __add__(self, other: str) -> str:
        return self._text + other

    def __radd__(self, other: str) -> str:
        return other + self._text


def with_arguments(message: Any) -> Any:
    """Returns a message with the arguments of its calls as templates may read them; they are objects, or JSON."""
    if not isinstance(message, dict) or not isinstance(message.get("tool_calls"), list):
        return message
    return {**message, "tool_calls": [_with_arguments(call) for call in message["tool_calls"]]}


def _with_arguments(call: Any) -> Any:
    match call:
        case {"function": {"arguments": str() | dict() as arguments} as function}:
            return {**call, "function": {**function, "arguments": Arguments(arguments)}}
    return call


class PlainNamespace(Namespace):
    """A namespace that can't pose as another object: no name in it begins with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # without `self`, which is a name that a template may give
        names = dict(*args[1:], **kwargs)
        for name in names:
            _refuse_underscore(name)
        Namespace.__init__(args[0], names)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: Any) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace takes no name that begins with an underscore, such as {name!r}")


def raise_exception(message: str) -> None:
    """Lets a template refuse a conversation."""
    raise jinja2.TemplateError(message)


def strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None,
           separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
    """Returns plain JSON; Jinja's own filter of this name escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment() -> ImmutableSandboxedEnvironment:
    """Returns an environment with the names and settings that transformers' `apply_chat_template` gives templates."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, namespace=PlainNamespace)
    return environment


class Templates:
    """A model's templates by name, compiled."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._environment = make_environment()
        self._templates: dict[str, jinja2.Template] = {}
        self.variables: dict[str, list[str]] = {}
        """The variables that each template reads but does not set itself."""
        self.roles: dict[str, list[str]] = {}
        """The texts that each template compares a role with."""
        self.errors: dict[str, str] = {}
        """Why a template can't be used."""
        for name, source in sources.items():
            try:
                self.variables[name] = sorted(meta.find_undeclared_variables(self._environment.parse(source)))
                self.roles[name] = sorted(_roles(self._environment.parse(source)))
                self._templates[name] = self._environment.from_string(source)
            except Exception as error:
                self.errors[name] = _words(error)

    def described(self) -> dict[str, Any]:
        """Returns all findings, by kind and name."""
        return {"variables": self.variables, "roles": self.roles, "errors": self.errors}

    def render(self, name: str, variables: dict[str, Any]) -> dict[str, str]:
        """Returns the text, or the error of a template, which may fail in any way that Python knows."""
        if name in self.errors:
            return {"error": self.errors[name]}
        try:
            messages = [with_arguments(message) for message in variables.pop("messages", ())]
            pieces = self._templates[name].generate({**variables, "messages": messages})
            return {"text": "".join(_bounded(pieces))}
        except Exception as error:
            return {"error": _words(error)}


@lru_cache(maxsize=MAX_GIVEN)
def _given(source: str) -> Templates:
    """Returns a template that came with a request, compiled; requests that follow have often the same."""
    return Templates({"": source})


def _reply(templates: Templates, question: dict[str, Any]) -> dict[str, Any]:
    """Answers a question about one of the model's templates, or about one that comes with it."""
    if "source" not in question:
        return templates.render(question["template"], question["variables"])
    given = _given(question["source"])
    return given.render("", question["variables"]) if "variables" in question else given.described()


def _roles(tree: nodes.Template) -> set[str]:
    """Returns the texts in comparisons that a `role` is part of."""
    found = set()
    for comparison in tree.find_all(nodes.Compare):
        texts = {each.value for each in comparison.find_all(nodes.Const) if isinstance(each.value, str)}
        names = {each.attr for each in comparison.find_all(nodes.Getattr)}
        names |= {each.name for each in comparison.find_all(nodes.Name)}
        if "role" in texts | names:
            found |= texts - {"role"}
    return found


def _bounded(pieces: Iterator[str]) -> Iterator[str]:
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > MAX_CHARACTERS:
            raise jinja2.TemplateError(f"the text has more than {MAX_CHARACTERS} characters")
        yield piece


def _words(error: Exception) -> str:
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{error.message}, line {error.lineno}"
    return str(error) or type(error).__name__


@contextmanager
def _in_time() -> Iterator[None]:
    """Bounds the processor time of the block: SIGPROF, for which there is no handler, ends the process."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _answer(line: bytes, work: Callable[[Any], dict[str, Any]]) -> None:
    try:
        question = json.loads(line)
        with _in_time():
            reply = as_line(work(question))
    except Exception as error:  # such as MemoryError
        reply = as_line({"error": _words(error)})
    sys.stdout.buffer.write(reply)
    sys.stdout.flush()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its stdin
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # nobody is there for an answer, or for a complaint about that
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    templates = Templates({})

    def compiled(sources: dict[str, str]) -> dict[str, Any]:
        nonlocal templates
        templates = Templates(sources)
        return templates.described()

    lines = sys.stdin.buffer
    with suppress(ConnectionResetError):  # the router has died and left an answer unread
        _answer(lines.readline(), compiled)
        for line in lines:
            _answer(line, partial(_reply, templates))


if __name__ == "__main__":
    main()
