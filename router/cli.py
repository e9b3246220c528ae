"""`penstock`: the same server under its own name."""

import click

from router.launcher import serve
from router.option_types import Command
from router.options import OPTIONS


@click.group()
@click.version_option(package_name="penstock")
def main() -> None:
    """Penstock: serve a language model; no answer is lost, no answer changes."""


main.add_command(Command(
    "serve", callback=serve, help="Serve MODEL, a directory or a name on the Hugging Face Hub.",
    params=[click.Argument(["model_id"], metavar="MODEL", required=False, envvar="MODEL_ID"),
            *(option for option in OPTIONS if option.name != "model_id")]))
