"""Writes what is made from the chart and the launcher's options: `python -m tests.deploy.manifests`.

That is the plain manifests in deploy/kubernetes, the settings in the chart's schema, and the list of those of groups.
"""

from typing import Any

from tests.deploy.chart import SCHEMA, SETTINGS, render, schema_text, settings_text
from tests.paths import ROOT

FOLDER = ROOT / "deploy/kubernetes"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"

PLAIN: dict[str, dict[str, Any]] = {
    "cpu.yaml": {"model": {"id": MODEL}},
    "gpu.yaml": {
        "kind": "StatefulSet", "gpu": {"count": 1}, "model": {"id": "Qwen/Qwen2.5-7B-Instruct"},
        "hub": {"existingSecret": "hub-token"},
        "resources": {"requests": {"cpu": "4", "memory": "32Gi"}, "limits": {"memory": "32Gi"}}},
    "groups.yaml": {"model": {"id": MODEL}, "groups": {"enabled": True, "tls": {"existingSecret": "shard-tls"}}},
}
"""The values of each plain manifest."""


def text(name: str) -> str:
    """Returns the text of a plain manifest, without what only Helm needs."""
    helms = ("# Source: ", "app.kubernetes.io/managed-by: Helm", "helm.sh/chart: ")
    rendered = render(PLAIN[name], namespace="default")
    lines = [line for line in rendered.splitlines() if not line.strip().startswith(helms)]
    return f"# Made from deploy/helm/penstock by `make manifests`: kubectl apply -f {name}\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text())
    SETTINGS.write_text(settings_text())
    for name in PLAIN:
        (FOLDER / name).write_text(text(name))
