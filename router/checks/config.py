"""The file of checks: which there are, and what becomes of an answer that fails one."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
import yaml  # type: ignore[import-untyped]
from annotated_types import Ge, Gt, Le, MinLen
from pydantic import BaseModel, ConfigDict, Field

from penstock.system.arguments import InvalidArgument
from penstock.system.setting import ByteSize

MAX_RETRIES = 10
Words = list[Annotated[str, MinLen(1)]]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Check(_Shape):
    """The fields of all checks: a name, and the text behind whose last place the answer is looked at."""

    name: Annotated[str, Field(pattern=r"^[\w.-]{1,64}$")]
    behind: Annotated[str, MinLen(1)] | None = None


class Regex(_Check):
    """Regular expressions: each is looked for anywhere in the answer."""

    kind: Literal["regex"]
    must_match: Words = []
    must_not_match: Words = []
    file: None = None


class WordList(_Check):
    """Words and phrases, in any case; one is found where no letter or digit is beside it."""

    kind: Literal["words"]
    required: Words = []
    forbidden: Words = []
    file: Path | None = None
    """More forbidden ones, one a line."""


class JsonSchema(_Check):
    """A schema that the answer, as JSON, must be valid by."""

    kind: Literal["json_schema"]
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    file: Path | None = None


class Callable(_Check):
    """A function of the operator's, in a Python file."""

    kind: Literal["python"]
    file: Path
    function: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")] = "check"


class ChecksFile(_Shape):
    """The whole file."""

    checks: Annotated[list[Annotated[Regex | WordList | JsonSchema | Callable, Field(discriminator="kind")]], MinLen(1)]
    retries: Annotated[int, Ge(0), Le(MAX_RETRIES)] = 0
    """How often an answer that fails, and that was sampled, is made anew by another seed."""
    seconds: Annotated[float, Gt(0), Le(60)] = 2.0
    """How long all checks of an answer may take."""
    memory: Annotated[int, Ge(1 << 26)] = 1 << 29
    """How many bytes of memory a process of the checks may have."""

    @classmethod
    def read(cls, file: Path) -> Self:
        """Reads a file. Raises InvalidArgument, which names the field that is wrong."""
        try:
            return cls.of(yaml.safe_load(file.read_text()), str(file))
        except OSError as error:
            raise InvalidArgument(f"`output_checks`: cannot read {file}: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"`output_checks`: {file} is no YAML: {error}") from error

    @classmethod
    def of(cls, content: Any, where: str) -> Self:
        """Makes it of what a file has; `where` says which. Raises InvalidArgument, which names the field that is wrong.
        """
        try:
            if isinstance(content, dict) and isinstance(content.get("memory"), str):
                content["memory"] = ByteSize().convert(content["memory"], None, None)
            found = cls.model_validate(content)
        except pydantic.ValidationError as error:
            raise InvalidArgument(f"`output_checks`: {where}: {_explained(error)}") from error
        except Exception as error:
            raise InvalidArgument(f"`output_checks`: {where}: {error}") from error
        names = [check.name for check in found.checks]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InvalidArgument(f"`output_checks`: {where}: there are two checks `{twice}`")
        return found

    def told(self, folder: Path) -> list[dict[str, Any]]:
        """Returns the checks as their processes are told them, with the content of their files, which are looked for in
        `folder`. Raises InvalidArgument for a file that can't be read."""
        return [_told(check, folder) for check in self.checks]


def _told(check: Regex | WordList | JsonSchema | Callable, folder: Path) -> dict[str, Any]:
    told = check.model_dump(mode="json", by_alias=True)
    if check.file is None:
        return told
    file = folder / check.file
    try:
        content = file.read_text()
        match check:
            case WordList():
                told["forbidden"] += [word for line in content.splitlines() if (word := line.strip())]
            case JsonSchema():
                told["schema"] = yaml.safe_load(content)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidArgument(f"`output_checks`: `file` of `{check.name}` can't be read: {error}") from error
    return {**told, "file": str(file)}


def _explained(error: pydantic.ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("regex", "words", "json_schema", "python"))
    return f"`{where}`: {first['msg'][:1].lower()}{first['msg'][1:]}" if where else first["msg"]
