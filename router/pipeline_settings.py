"""The settings of a pipeline: steps in their order, each of which makes a value of those before it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal, Self, get_args

import click

from penstock.system.arguments import InvalidArgument
from penstock.system.setting import ByteSize

Kind = Literal["template", "tokenize", "model", "python", "check"]
Task = Literal["generate", "embed", "rerank", "classify"]
PROMPT, MESSAGES = "prompt", "messages"
"""The values that a request begins with."""
GIVEN = (PROMPT, MESSAGES)
LONE = "text"
"""The name that the input of most steps has."""
UNNAMED = ""
"""The name of the input of a function that takes what the step before it makes."""
_LIMITED = ("seconds", "memory")
_FIELDS: Mapping[str, Sequence[str]] = {
    "template": (), "tokenize": (), "model": ("task", "parameters"), "python": ("function", "stream", *_LIMITED),
    "check": _LIMITED}
"""The fields of each kind of step, beside `name` and `inputs`, which all have."""
PARAMETERS = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "frequency_penalty", "presence_penalty",
              "repetition_penalty")
"""The parameters that a step may have for a model that generates, by OpenAI's names."""
LEAST_MEMORY = 1 << 26
ROUTES = ("/generate", "/generate_stream", "/", "/v1/completions", "/v1/chat/completions", "/v2/models/NAME/generate",
          "/v2/models/NAME/generate_stream")
"""The routes that pipelines have."""


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """A step. What it makes has its `name`. `value` is the source of a template, the name of a model, the file of a
    function, or that of checks, or checks themselves. `inputs` has the names of values by those that the step has for
    them."""

    name: str
    kind: Kind
    value: Any
    folder: str = ""
    """Where files that checks name are looked for."""
    inputs: Mapping[str, str]
    task: Task | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    function: str = "run"
    stream: bool = False
    """Whether the function takes an answer piece by piece."""
    seconds: float = 10.0
    memory: int = 1 << 29

    @property
    def generates(self) -> bool:
        """Whether a model generates text in it."""
        return self.task == "generate"

    @property
    def models(self) -> Iterator[str]:
        """The names of the models that it asks."""
        if self.kind in ("model", "tokenize"):
            yield self.value

    @classmethod
    def parse(cls, given: object, number: int, before: Sequence[str], folder: Path) -> Self:
        """Reads a step behind those that make the values `before`. Its files are looked for in `folder`. Raises
        InvalidArgument."""
        kinds = [kind for kind in get_args(Kind) if isinstance(given, dict) and kind in given]
        if not isinstance(given, dict) or len(kinds) != 1:
            raise InvalidArgument(f"step {number} must have one of {', '.join(get_args(Kind))}. Given: {given!r}")
        kind = kinds[0]
        name = given.get("name", kind if kind not in before else f"{kind}{number}")
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidArgument(f"step {number}: `name` must have letters, digits and _ alone. Given: {name!r}")
        if name in before:
            raise InvalidArgument(f"step {number}: `name`: there is a value {name} already")
        try:
            return cls(name=name, kind=kind, **_fields(kind, given, before, folder))
        except InvalidArgument as error:
            raise InvalidArgument(f"step `{name}`: {error.message}") from error


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """A pipeline by its name. The last step that generates makes the answer, which steps behind it may change."""

    name: str
    steps: tuple[StepSettings, ...]

    @property
    def answering(self) -> int:
        """The place of the step whose model answers."""
        return max(place for place, step in enumerate(self.steps) if step.generates)

    @property
    def models(self) -> list[str]:
        """The names of the models that its steps ask, each once."""
        return [*dict.fromkeys(model for step in self.steps for model in step.models)]

    @classmethod
    def parse(cls, name: str, given: Mapping[str, Any], folder: Path) -> Self:
        """Makes them of the fields of a model that is listed. Raises InvalidArgument."""
        if unknown := sorted(set(given) - {"pipeline"}):
            raise InvalidArgument(f"`{unknown[0]}` is no setting of a pipeline, which has steps alone")
        entries = given["pipeline"]
        if not isinstance(entries, list):
            raise InvalidArgument(f"`pipeline` must be a list of steps. Given: {entries!r}")
        steps: list[StepSettings] = []
        for number, entry in enumerate(entries, 1):
            steps.append(StepSettings.parse(entry, number, [*GIVEN, *(step.name for step in steps)], folder))
        if not any(step.generates for step in steps):
            raise InvalidArgument("`pipeline` must have a step whose model generates, for that makes the answer")
        pipeline = cls(name=name, steps=tuple(steps))
        pipeline._check_streams()
        return pipeline

    def _check_streams(self) -> None:
        """A function that takes pieces must follow the answer, and take nothing but what the step before it makes."""
        for place, step in enumerate(self.steps):
            if step.stream and (place <= self.answering or [*step.inputs] != [UNNAMED]):
                raise InvalidArgument(f"step `{step.name}`: `stream` is for functions behind the answer that take what "
                                      "the step before them makes, without `inputs`")


def circle_of(pipelines: Iterable[PipelineSettings], aliases: Mapping[str, Mapping[str, float]]) -> str | None:
    """Returns the names of pipelines, and of aliases, that ask one another in a circle; None if there are none."""
    graph = {**{alias: [*targets] for alias, targets in aliases.items()},
             **{pipeline.name: pipeline.models for pipeline in pipelines}}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " → ".join(error.args[1])
    return None


def _fields(kind: Kind, given: Mapping[str, Any], before: Sequence[str], folder: Path) -> dict[str, Any]:
    """Returns the fields of a step. Raises InvalidArgument."""
    known = (*_FIELDS[kind], "name", "inputs", kind)
    if unknown := [key for key in given if key not in known]:
        raise InvalidArgument(f"`{unknown[0]}` is no field of a step `{kind}`; those are {', '.join(known)}")
    found = {key: value for key, value in given.items() if key in _FIELDS[kind]}
    if kind == "model":
        found["task"] = _one_of("task", found.get("task", "generate"), get_args(Task))
        _check_parameters(found.get("parameters", {}), found["task"])
    if not isinstance(found.get("stream", False), bool):
        raise InvalidArgument(f"`stream` must be true or false. Given: {found['stream']!r}")
    function = found.get("function", "run")
    if not isinstance(function, str) or not function.isidentifier():
        raise InvalidArgument(f"`function` must be the name of a function. Given: {function!r}")
    return {**found, **_limits(found), "value": _value(kind, given[kind], folder), "folder": str(folder.absolute()),
            "inputs": _inputs(given.get("inputs"), kind, found.get("task"), before)}


def _limits(found: Mapping[str, Any]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if "seconds" in found:
        limits["seconds"] = seconds = found["seconds"]
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 600:
            raise InvalidArgument(f"`seconds` must be > 0 and <= 600. Given: {seconds!r}")
    if "memory" in found:
        try:
            limits["memory"] = ByteSize().convert(found["memory"], None, None)
        except click.UsageError as error:
            raise InvalidArgument(f"`memory`: {error.message}") from error
        if limits["memory"] < LEAST_MEMORY:
            raise InvalidArgument(f"`memory` must be at least {LEAST_MEMORY} bytes. Given: {found['memory']}")
    return limits


def _value(kind: Kind, value: object, folder: Path) -> Any:
    if kind == "check" and isinstance(value, list):
        return value
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"`{kind}` must be a text. Given: {value!r}")
    if kind not in ("python", "check"):
        return value
    file = folder / value
    if not file.is_file():
        raise InvalidArgument(f"`{kind}`: there is no file {file}")
    return str(file.absolute())


def _inputs(given: object, kind: Kind, task: Task | None, before: Sequence[str]) -> dict[str, str]:
    """Returns the names of values by the names that the step has for them; without `inputs` it takes the one that was
    made last, or the prompt."""
    last = before[-1] if len(before) > len(GIVEN) else PROMPT
    if given is None:
        if kind == "template":
            return {}
        if kind == "python":
            return {UNNAMED: last}
        given = {"query": PROMPT, "texts": last} if task == "rerank" else {LONE: last}
    if isinstance(given, list):
        given = {name: name for name in given}
    if not isinstance(given, dict) or not all(isinstance(part, str) for pair in given.items() for part in pair):
        raise InvalidArgument(f"`inputs` must be a list of values, or have their names. Given: {given!r}")
    if unknown := [value for value in given.values() if value not in before]:
        raise InvalidArgument(f"`inputs`: no step before makes {unknown[0]}; there are {', '.join(before)}")
    wanted = ["query", "texts"] if task == "rerank" else [LONE]
    if kind not in ("template", "python") and sorted(given) != wanted:
        raise InvalidArgument(f"`inputs` must have {' and '.join(wanted)}. Given: {', '.join(given) or 'none'}")
    return given


def _one_of(name: str, given: object, known: Sequence[str]) -> Any:
    if given not in known:
        raise InvalidArgument(f"`{name}` must be one of {', '.join(known)}. Given: {given!r}")
    return given


def _check_parameters(given: object, task: str) -> None:
    if not isinstance(given, dict) or [name for name in given if name not in PARAMETERS]:
        raise InvalidArgument(f"`parameters` must be an object of {', '.join(PARAMETERS)}. Given: {given!r}")
    if given and task != "generate":
        raise InvalidArgument("`parameters` are for models that generate")
