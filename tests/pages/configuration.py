"""Renders `docs/configuration.md` from the options of the command line."""

from collections.abc import Iterable

import click

from penstock.launcher.group_options import OWN, SHARED
from penstock.launcher.option_types import Noted, Option, Unsupported
from penstock.launcher.options import OPTIONS
from tests.paths import ROOT

PAGE = ROOT / "docs/configuration.md"

HEAD = """\
# Every setting

`python -m tests.pages` writes this page from the options of the command line. A test fails when it is not up to date.

`text-generation-launcher --model-id MODEL` and `penstock serve MODEL` take the same options. Each has a variable, which
holds where the option is not given. A variable is true by `true`, `1` or `yes`. Names, variables and defaults are those
of TGI's launcher. An option whose text begins with "Penstock:" is not one of TGI's.

An option that is marked ● is also one of `penstock group`, which runs shards without a router ([groups](groups.md)).
"""


def render() -> str:
    """Returns the page."""
    options = [option for option in OPTIONS if isinstance(option, Option) and not isinstance(option, Unsupported)]
    groups = dict.fromkeys(option.group for option in options)
    parts = [HEAD]
    for group in groups:
        parts.append(f"## {group}\n\n" + _table(option for option in options if option.group == group))
    parts.append("## Only of `penstock group`\n\n" + _table(option for option in OWN if isinstance(option, Option)))
    refused = ", ".join(f"`{option.opts[0]}`" for option in OPTIONS if isinstance(option, Unsupported))
    parts.append("## Options of TGI that are refused\n\n"
                 f"{refused}. The server does not start with one of them, and says which, unless its value asks for "
                 "nothing. [What of TGI is there](compatibility.md) has the reasons.\n")
    return "\n".join(parts)


def _table(options: Iterable[Option]) -> str:
    rows = [f"| {_names(option)} | {_variable(option)} | {_default(option)} | {_meaning(option)} |"
            for option in options]
    return "\n".join(["| option | variable | default | |", "|---|---|---|---|", *rows]) + "\n"


def _names(option: Option) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(click.Command('serve')))}"
    names = ", ".join(f"`{name}`" for name in option.opts)
    mark = " ●" if option.name in SHARED and not isinstance(option, Noted) else ""
    return f"{names}{mark}<br>`{value.strip()}`".replace("|", " \\| ") if value else f"{names}{mark}"


def _variable(option: Option) -> str:
    variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar or []
    return "<br>".join(f"`{name}`" for name in variables)


def _default(option: Option) -> str:
    if option.is_flag or option.default is None or not option.show_default:
        return ""
    return f"`{option.default}`"


def _meaning(option: Option) -> str:
    bounds = option.type._describe_range() if isinstance(option.type, click.IntRange | click.FloatRange) else ""
    text = (option.help or "").replace("|", "\\|").replace("<", "&lt;")
    return f"{text} `{bounds}`" if bounds else text
