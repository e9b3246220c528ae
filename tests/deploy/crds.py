"""Schemas of the parts of custom resources that the deployment uses.

kubernetes-validate knows Kubernetes' own kinds alone. These have the fields that the operators' documentation names,
no more, so that a misspelt field is found; they don't replace the operators' own checks.
"""

from typing import Any

import jsonschema

TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}


def _object(required: str = "", **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required.split()}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


LABELS = {"type": "object", "additionalProperties": TEXT}
METADATA = _object("name", name=TEXT, namespace=TEXT, labels=LABELS, annotations=LABELS)
SECRET_KEY = _object("name key", name=TEXT, key=TEXT)
ENDPOINT = _object(
    "port", port=TEXT, path=TEXT, interval={"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
    scheme={"enum": ["http", "https"]}, tlsConfig=_object(insecureSkipVerify={"type": "boolean"}),
    authorization=_object("credentials", type=TEXT, credentials=SECRET_KEY))
TRIGGER = _object(
    "type metadata", type={"const": "prometheus"}, metricType={"enum": ["AverageValue", "Value"]},
    metadata=_object("serverAddress query threshold", serverAddress=TEXT, query=TEXT, threshold=TEXT))
SCALED = _object(
    "scaleTargetRef triggers", scaleTargetRef=_object("name", apiVersion=TEXT, kind=TEXT, name=TEXT),
    minReplicaCount=COUNT, maxReplicaCount=COUNT, triggers=_list(TRIGGER),
    advanced=_object(horizontalPodAutoscalerConfig=_object(
        behavior=_object(scaleDown=_object(stabilizationWindowSeconds=COUNT)))))
VARIABLE = _object("name", name=TEXT, value=TEXT, valueFrom={"type": "object"})
CONTAINER = _object(
    "name image", name={"const": "kserve-container"}, image=TEXT, args=_list(TEXT), env=_list(VARIABLE),
    ports=_list(_object("containerPort", containerPort=COUNT, name=TEXT, protocol=TEXT)),
    readinessProbe={"type": "object"}, livenessProbe={"type": "object"}, startupProbe={"type": "object"},
    resources={"type": "object"}, securityContext={"type": "object"}, lifecycle={"type": "object"},
    volumeMounts=_list({"type": "object"}))
RUNTIME = _object(
    "supportedModelFormats containers", annotations=LABELS, multiModel={"const": False},
    supportedModelFormats=_list(_object("name", name=TEXT, version=TEXT, autoSelect={"type": "boolean"},
                                        priority=COUNT)),
    containers=_list(CONTAINER), volumes=_list({"type": "object"}))
PREDICTOR = _object(
    "model", minReplicas=COUNT, maxReplicas=COUNT, terminationGracePeriodSeconds=COUNT,
    securityContext={"type": "object"},
    model=_object("modelFormat runtime", modelFormat=_object("name", name=TEXT), runtime=TEXT, storageUri=TEXT,
                  env=_list(VARIABLE), args=_list(TEXT), resources={"type": "object"}))

SCHEMAS = {
    "monitoring.coreos.com/v1": {"ServiceMonitor": _object(
        "selector endpoints", selector=_object("matchLabels", matchLabels=LABELS), endpoints=_list(ENDPOINT))},
    "keda.sh/v1alpha1": {"ScaledObject": SCALED},
    "serving.kserve.io/v1alpha1": {"ServingRuntime": RUNTIME},
    "serving.kserve.io/v1beta1": {"InferenceService": _object("predictor", predictor=PREDICTOR)},
}
"""The schema of each kind's `spec`, by apiVersion and kind."""


def validate(manifest: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError for a custom resource with a field that is unknown, missing or mistyped."""
    kinds = SCHEMAS[manifest["apiVersion"]]
    spec = kinds[manifest["kind"]]
    jsonschema.validate(manifest, _object(
        "apiVersion kind metadata spec", apiVersion=TEXT, kind=TEXT, metadata=METADATA, spec=spec))
