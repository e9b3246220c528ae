"""Settings that can't be met: the error that names them, and the exit code of a process that got one."""

from typing import IO, Any

import click

USAGE_ERROR = 2
"""Exit code of a process whose settings can't be met: to start it again would lead to the same end."""


class InvalidArgument(click.ClickException):
    """Raised for a setting that can't be used; the message names it and the value found."""

    exit_code = USAGE_ERROR

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"Invalid argument: {self.message}", file=file, err=True)
