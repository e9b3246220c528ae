"""The options of `penstock group`: those of `penstock serve` that concern shards, and its own."""

from typing import Any

import click
from click.core import ParameterSource

from penstock.launcher.group_place import GroupPlace
from penstock.launcher.option_types import Option
from penstock.launcher.options import OPTIONS, options_of
from penstock.system import addresses
from penstock.system.arguments import InvalidArgument
from penstock.system.setting import Who, settings
from penstock.system.settings import SHARDS, ServerSettings

SHARED = tuple(each.name for each, said, _ in settings(ServerSettings) if Who.GROUP in said.who)
"""The options of the launcher that mean the same for a group without a router."""
OF_SHARDS = tuple(each.name for each, said, _ in settings(ServerSettings) if Who.NO_ROUTER in said.who)
"""Those that mean nothing to a router without shards of its own."""


class Address(click.ParamType[tuple[str, int]]):
    """HOST:PORT, as the host and the port."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        try:
            return value if isinstance(value, tuple) else addresses.split(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


OWN: list[click.Parameter] = [
    Option("--listen", SHARDS, "Where the shards listen: the first one at HOST:PORT, the others at the ports that "
           "follow. Required.", type=Address(), required=True),
    Option("--group-name", SHARDS, "What routers, logs and metrics call the group. Default: HOST:PORT of --listen, or "
           "with several machines of --master-addr and --master-port."),
    *options_of(GroupPlace),
]

GROUP_OPTIONS: list[click.Parameter] = [
    *OWN, *(option for option in OPTIONS if option.name in SHARED)]


def completed(context: click.Context) -> dict[str, Any]:
    """Returns the values of a command line of `penstock group`, and whether it leaves room for adapters."""
    has_adapters = context.get_parameter_source("max_adapter_memory") in (
        ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return context.params | {"has_adapters": has_adapters}


def refuse_options_of_shards(context: click.Context) -> None:
    """Raises InvalidArgument for an option that concerns shards, given to a router that starts none."""
    for option in context.command.params:
        if option.name in OF_SHARDS and isinstance(option, Option) and option.is_given(context):
            raise InvalidArgument(f"{option.shown(context)} concerns shards, and with --groups none are started here: "
                                  "give it to `penstock group`, which starts them")
