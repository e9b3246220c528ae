"""The kinds of options on the launcher's command line."""

import re
import textwrap
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from penstock.system.arguments import InvalidArgument
from penstock.system.settings import REST

NOTES = "penstock.notes"
"""The key in `click.Context.meta` of the sentences to log once logging is set up."""


class Place(click.types.StringParamType):
    """A directory, a file or a name, of which an environment variable has one alone, whatever blanks are in it."""

    def split_envvar_value(self, rv: str) -> list[str]:
        return [rv]


NAMED = re.compile(r"([^/=]+)=(.+)")
"""NAME=PLACE; what has a `/` before the `=` is a place."""


def places(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> str | tuple[str, ...] | None:
    """Returns all places, or one, if there is one: the only one, or of an option that is given again and has no names
    the last, as of any option."""
    is_again = isinstance(option, click.Option) and not any(NAMED.fullmatch(place) for place in value)
    return value if len(value) > 1 and not is_again else next(reversed(value), None)


class Option(click.Option):
    """An option in a group of the help page, with an environment variable of the same name in capitals."""

    def __init__(self, names: str, group: str, help: str, **attributes: Any) -> None:
        variable = names.split()[0].removeprefix("--").replace("-", "_").upper()
        default = attributes.get("default")
        has_default = default is not None and default is not False and "Default:" not in help
        super().__init__(names.split(), help=help, **{
            "envvar": variable, "show_envvar": True, "show_default": has_default, **attributes})
        self.group = group

    def is_given(self, context: click.Context) -> bool:
        source = context.get_parameter_source(self.name) if self.name else None
        return source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)

    def shown(self, context: click.Context) -> str:
        """Returns the option as the user wrote it, for messages."""
        from_variable = self.name and context.get_parameter_source(self.name) is ParameterSource.ENVIRONMENT
        return f"{self.opts[0]} (environment variable {self.envvar})" if from_variable else self.opts[0]


class Noted(Option):
    """An option of TGI whose value changes nothing here: when it is given, the reason `note(value)` is logged."""

    def __init__(self, names: str, group: str, help: str, note: Callable[[Any], str | None], **attributes: Any) -> None:
        super().__init__(names, group, help, callback=self._take_note, expose_value=False, **attributes)
        self._note = note

    def _take_note(self, context: click.Context, _: click.Parameter, value: Any) -> None:
        if self.is_given(context) and (sentence := self._note(value)):
            note(context, f"{self.shown(context)}: {sentence}")


class Unsupported(Option):
    """An option of TGI that is refused when given, unless its value is one of `off`, which asks for nothing."""

    def __init__(self, names: str, *off: Any, **attributes: Any) -> None:
        super().__init__(names, "", "", callback=self._refuse, expose_value=False, hidden=True, **attributes)
        self._off = off

    def _refuse(self, context: click.Context, _: click.Parameter, value: Any) -> None:
        if self.is_given(context) and value not in self._off:
            raise InvalidArgument(f"{self.shown(context)}: not supported by this release, leave it out")


class Command(click.Command):
    """A command whose help page shows the options by group and names those that are refused."""

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name, context_settings={"max_content_width": 110}, **attributes)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            if record := option.get_help_record(ctx):
                groups.setdefault(getattr(option, "group", REST), []).append(record)
        if others := groups.pop(REST, None):
            groups[REST] = others
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)
        refused = ", ".join(option.opts[0] for option in self.params if isinstance(option, Unsupported))
        if not refused:
            return
        with formatter.section("Options of TGI that this release refuses"):
            lines = textwrap.wrap(refused, formatter.width - 2, break_on_hyphens=False)
            formatter.write("".join(f"  {line}\n" for line in lines))


def note(context: click.Context, sentence: str) -> None:
    context.meta.setdefault(NOTES, []).append(sentence)
