"""The annotation of a setting, by which its field is an option, too, and the values that the command line can hold."""

import enum
import math
import re
from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import click

from penstock.system.arguments import InvalidArgument


class Who(enum.Flag):
    """The processes that a setting is for, beside the launcher, and the commands that have it, beside `serve`."""

    LAUNCHER = 0
    ROUTER = enum.auto()
    SHARD = enum.auto()
    GROUP = enum.auto()
    """`penstock group` has it, with the same meaning."""
    NO_ROUTER = enum.auto()
    """It means nothing to a router without shards of its own."""
    ALIKE = enum.auto()
    """All machines of a group must have the same: their shards would wait for one another, or compute different
    things."""


class Setting:
    """Says of a dataclass's field in which group of the help page it is, what it means, and who is told it. `short` is
    a second name; `attributes` are those of click's option that do not follow from the field's type and default."""

    def __init__(
        self, group: str, help: str, who: Who = Who.ROUTER, short: str | None = None, **attributes: Any
    ) -> None:
        self.group = group
        self.help = help
        self.who = who
        self.short = short
        self.attributes = attributes


def settings(of: type[Any]) -> Iterator[tuple[Field[Any], Setting, Any]]:
    """Yields the fields of a dataclass that are settings, in their order, with what they say and their types."""
    hints = get_type_hints(of, include_extras=True)
    for each in fields(of):
        if get_origin(hints[each.name]) is Annotated:
            said = get_args(hints[each.name])[-1]
            if isinstance(said, Setting):
                yield each, said, hints[each.name]


class Integer(click.IntRange):
    """An integer between bounds, which messages call an integer and not a range."""

    name = "integer"


class Number(click.FloatRange):
    """A finite number between bounds."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number

    def _describe_range(self) -> str:
        """Returns the bounds for the help page; click has `x<=None` for a number without any."""
        return "" if self.min is None and self.max is None else super()._describe_range()


COUNT, PORT = Integer(min=0), Integer(0, 2**16 - 1)


class ByteSize(click.ParamType[int]):
    """A number of bytes, such as `4294967296`, `4GiB` or `4.5GB`."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMGT]?)(i?)B?", str(value), re.IGNORECASE)
        if not match or (match[3] and not match[2]):
            self.fail(f"{value!r} is not a number of bytes such as 4294967296 or 4GiB", param, ctx)
        size = int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2].upper() or " "))
        if size < 1:
            self.fail(f"{value!r} is no memory at all", param, ctx)
        return size


_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)"
FOREVER = 1e15
"""The seconds that stand for no end."""


class Duration(click.ParamType[float]):
    """A number of seconds, such as `300`, or as Ollama has it, `5m` or `1h30m`; FOREVER of one below 0."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip().lower()
        sign, unsigned = (-1, text[1:]) if text.startswith("-") else (1, text)
        if re.fullmatch(r"\d+(\.\d+)?", unsigned):
            seconds = float(unsigned)
        elif re.fullmatch(f"(?:{_DURATION})+", unsigned):
            seconds = sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_DURATION, unsigned))
        else:
            self.fail(f"{value!r} is not a number of seconds such as 300, 5m, or -1 for ever", param, ctx)
        return FOREVER if sign < 0 and seconds else min(seconds, FOREVER)


class Counts(click.ParamType[tuple[int, ...]]):
    """Integers with commas between them, such as `1,2,4`."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if not re.fullmatch(r"\d+( *, *\d+)*", str(value).strip()):
            self.fail(f"{value!r} is not a list of numbers such as 1,2,4", param, ctx)
        return tuple(int(count) for count in str(value).split(","))


class Line(click.types.StringParamType):
    """A text without line breaks; an environment variable may hold several, one a line."""

    name = "text"

    def split_envvar_value(self, rv: str) -> list[str]:
        return rv.splitlines()


class Quantization(click.Choice[str]):
    """The formats to which weights may be quantised. TGI's one value that nothing here can read is refused with a
    reason."""

    REFUSED = "exl2"

    def __init__(self) -> None:
        super().__init__(("awq", "compressed-tensors", "eetq", "gptq", "marlin", "bitsandbytes", "bitsandbytes-nf4",
                          "bitsandbytes-fp4", "fp8", "mxfp4", "int8", "int4"))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == self.REFUSED:
            raise InvalidArgument(f"`quantize` {value}: its files need kernels for GPUs that this server does not "
                                  "have; a GPTQ, AWQ, compressed-tensors or GGUF file of the same model can be served")
        return super().convert(value, param, ctx)


@dataclass(frozen=True, slots=True)
class AskedAdapter:
    """An adapter as the user gave it: `origin` is a folder, or the name of a repository on the Hub."""

    name: str
    origin: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.name}={self.origin}@{self.revision}"


class AdapterList(click.ParamType[tuple[AskedAdapter, ...]]):
    """Adapters as TGI has them: `NAME`, `NAME=PLACE` or `NAME=PLACE@REVISION`, with commas between them."""

    name = "adapters"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[AskedAdapter, ...]:
        return tuple(self._adapter(item.strip(), param, ctx) for item in str(value).split(",") if item.strip())

    def _adapter(self, item: str, param: click.Parameter | None, ctx: click.Context | None) -> AskedAdapter:
        match = re.fullmatch(r"([^=@]+)(?:=([^=@]+))?(?:@([^=@]+))?", item)
        if match is None:
            self.fail(f"{item!r} is not an adapter such as NAME, NAME=PLACE or NAME=PLACE@REVISION", param, ctx)
        return AskedAdapter(match[1], match[2] or match[1], match[3])
