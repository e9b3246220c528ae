"""A group of commands that are imported when they run."""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """A group some of whose commands are named by "module:attribute", with a sentence for the group's help page.

    Help pages and other commands import none of them. A command that needs a package which is not installed says so.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if str(error.name).startswith("penstock"):
                raise
            raise click.ClickException(f"{cmd_name} needs the package {error.name}, which is not installed") from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._sentence(ctx, name)) for name in self.list_commands(ctx)])

    def _sentence(self, ctx: click.Context, name: str) -> str:
        if name in self._lazy:
            return self._lazy[name][1]
        command = super().get_command(ctx, name)
        return command.get_short_help_str(limit=100) if command else ""
