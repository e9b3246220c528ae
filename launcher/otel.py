"""OpenTelemetry's standard variables, where the options for traces are not given.

The SDK reads the others itself, in the router and the shards, which get all that begin with `OTEL_`.
"""

import os
from urllib.parse import unquote, urlsplit

import click

from penstock.launcher.option_types import Option, note
from penstock.system.arguments import InvalidArgument

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def endpoint(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Returns the collector that is given, by the option or by OpenTelemetry's variables, unless these say that there
    are to be no traces, or name another protocol than gRPC, which is noted. Raises InvalidArgument for what is no
    address."""
    if value:
        return _address("`otlp_endpoint`", value)
    wants_none = (os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
                  or os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp")
    found, protocol = _first(_ENDPOINTS), _first(_PROTOCOLS)
    if not found or wants_none:
        return None
    if protocol and protocol[1] != "grpc":
        note(context, f"nothing is traced: the collector of {found[0]} is to get {protocol[1]} by {protocol[0]}, and "
                      "spans are sent by grpc alone")
        return None
    return _address(*found)


def service_name(context: click.Context, option: click.Parameter, value: str) -> str:
    """Returns the service's name: the option's if it is given, or else OTEL_SERVICE_NAME, or what
    OTEL_RESOURCE_ATTRIBUTES say, or the option's default."""
    if isinstance(option, Option) and option.is_given(context):
        return value
    attributes = dict(pair.split("=", 1) for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
                      if "=" in pair)
    named = {name.strip(): unquote(text.strip()) for name, text in attributes.items()}
    return os.environ.get("OTEL_SERVICE_NAME") or named.get("service.name") or value


def _address(name: str, endpoint: str) -> str:
    """Returns an endpoint that spans can be sent to: `name` says where it is from."""
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise InvalidArgument(f"{name} must be http://HOST:PORT, https://HOST:PORT or HOST:PORT. Given: {endpoint}")
    return endpoint


def _first(names: tuple[str, ...]) -> tuple[str, str] | None:
    """Returns the first of these variables that says something, and what it says."""
    return next(((name, os.environ[name]) for name in names if os.environ.get(name)), None)
