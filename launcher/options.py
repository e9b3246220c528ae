"""Makes the options of the launcher's command line: of every setting, and of what TGI has beside them."""

import ipaddress
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import click
from annotated_types import Ge, Gt, Lt
from click.core import ParameterSource

from penstock.launcher import otel
from penstock.launcher.option_types import Noted, Option, Place, Unsupported, note, places
from penstock.router.fleet import groups_spec
from penstock.router.fleet.groups_spec import GroupsSpec
from penstock.system.arguments import InvalidArgument
from penstock.system.setting import COUNT, PORT, Integer, Number, settings
from penstock.system.settings import MEMORY, REST, SERVER, ServerSettings


def _hostname(context: click.Context, option: click.Parameter, value: str) -> str:
    """Returns an IP address. A container's own name in HOSTNAME must not keep the server from starting, and since every
    container has it there, is not worth a word."""
    address = "127.0.0.1" if value == "localhost" else value
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        if option.name and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise InvalidArgument(f"`hostname` must be an IP address or localhost, not {value!r}") from None
        if value != socket.gethostname():
            note(context, f"Invalid hostname {value!r} in HOSTNAME, defaulting to 0.0.0.0")
        return "0.0.0.0"


def _origins(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Raises InvalidArgument for a value that no browser sends as `Origin` and that is not `*`."""
    for origin in value:
        if origin not in ("*", "null") and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/,]+", origin):
            raise InvalidArgument("`cors_allow_origin` must be an origin such as https://example.org, or *; several "
                                  f"are given by as many options, or with spaces in the variable. Given: {origin!r}")
    return value


def _groups(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Raises InvalidArgument for a value that names no groups, or a file that can't be read."""
    if not value:
        return None
    try:
        spec = GroupsSpec.parse(value)
        if spec.file is not None:
            groups_spec.read(spec.file)
    except ValueError as error:
        raise InvalidArgument(f"`groups`: {error}") from error
    except OSError as error:
        raise InvalidArgument(f"`groups`: cannot read {spec.file}: {error.strerror}") from error
    return value


MORE: dict[str, dict[str, Any]] = {"model_id": {"multiple": True, "type": Place()}}
"""The attributes of options that do not follow from the types of their settings."""
CALLBACKS: dict[str, Callable[..., Any]] = {
    "model_id": places, "hostname": _hostname, "cors_allow_origin": _origins, "groups": _groups,
    "otlp_endpoint": otel.endpoint, "otlp_service_name": otel.service_name}
"""The functions that make, and check, the values of some settings, beyond their types."""


def _no_statistics(value: str) -> str | None:
    return None if value == "off" else "there are no usage statistics, nothing is sent"


def options_of(settings_class: type[Any]) -> Iterator[Option]:
    """Yields the options of a dataclass's settings, in their order."""
    for each, said, hint in settings(settings_class):
        default = {} if each.default in (None, (), "") else {"default": each.default}
        callback = {"callback": CALLBACKS[each.name]} if each.name in CALLBACKS else {}
        names = f"--{each.name.replace('_', '-')} {said.short or ''}"
        yield Option(names, said.group, said.help, **{
            **_attributes(hint), **default, **callback, **said.attributes, **MORE.get(each.name, {})})


def _attributes(hint: Any) -> dict[str, Any]:
    """Returns the attributes of an option that follow from the annotated type of its field."""
    kind, *bounds, _ = get_args(hint)
    alternatives = [each for each in get_args(kind) if each is not NoneType]
    is_optional = NoneType in get_args(kind)
    if is_optional:
        [kind] = alternatives
    if get_origin(kind) is Annotated:
        kind, *bounds = get_args(kind)
    if kind is bool:
        return {"type": bool} if is_optional else {"is_flag": True}
    if kind is Path:
        return {"type": click.Path(path_type=Path)}
    if get_origin(kind) is Literal:
        return {"type": click.Choice(get_args(kind))}
    if kind in (int, float):
        return {"type": _number(Integer if kind is int else Number, bounds)}
    return {"multiple": True} if get_args(kind)[:1] == (str,) else {}


def _number(kind: type[Integer | Number], bounds: Sequence[Any]) -> Integer | Number:
    given: dict[str, Any] = {}
    for bound in bounds:
        limit = getattr(bound, type(bound).__name__.lower())
        end = "min" if isinstance(bound, Ge | Gt) else "max"
        is_open = isinstance(bound, Gt | Lt)
        given[end] = limit + 1 if is_open and kind is Integer else limit  # whole numbers are above 0 from 1 on
        if is_open and kind is Number:
            given[f"{end}_open"] = True
    return kind(**given)


OPTIONS: list[click.Parameter] = [
    *options_of(ServerSettings),
    Noted("--waiting-served-ratio", MEMORY, "Accepted without effect, since prefill is chunked.", type=float,
          default=0.3, note=lambda value: f"{value} has no effect, since prefill is chunked"),
    Noted("--max-waiting-tokens", MEMORY, "Accepted without effect, since prefill is chunked.", type=COUNT,
          default=20, note=lambda value: f"{value} has no effect, since prefill is chunked"),
    Noted("--prometheus-port", SERVER, "Accepted without effect: metrics are at /metrics.", type=PORT,
          default=9000, note=lambda value: f"nothing listens on {value}, metrics are at /metrics of the main port"),
    Noted("--usage-stats", REST, "Accepted without effect: nothing is sent.",
          type=click.Choice(["on", "off", "no-stack"]), default="off", note=_no_statistics),
    Unsupported("--trust-remote-code", False, is_flag=True),
    Unsupported("--disable-custom-kernels", False, is_flag=True),
    Unsupported("--weights-cache-override"),
    Unsupported("--ngrok", False, is_flag=True),
    Unsupported("--ngrok-authtoken"),
    Unsupported("--ngrok-edge"),
]
