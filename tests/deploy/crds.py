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
SCALING = _object(
    stabilizationWindowSeconds=COUNT,
    policies=_list(_object("type value periodSeconds", type={"enum": ["Pods", "Percent"]}, value=COUNT,
                           periodSeconds={"type": "integer", "minimum": 1, "maximum": 1800})))
SCALED = _object(
    "scaleTargetRef triggers", scaleTargetRef=_object("name", apiVersion=TEXT, kind=TEXT, name=TEXT),
    minReplicaCount=COUNT, maxReplicaCount=COUNT, triggers=_list(TRIGGER),
    advanced=_object(horizontalPodAutoscalerConfig=_object(
        behavior=_object(scaleUp=SCALING, scaleDown=SCALING))))
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
POD = _object("spec", metadata=_object(labels=LABELS, annotations=LABELS), spec={"type": "object"})
LEADER_WORKERS = _object(
    "leaderWorkerTemplate", replicas=COUNT,
    rolloutStrategy=_object("type", type={"const": "RollingUpdate"}, rollingUpdateConfiguration=_object(
        partition=COUNT, maxUnavailable=COUNT, maxSurge=COUNT)),
    leaderWorkerTemplate=_object(
        "workerTemplate", size=COUNT, leaderTemplate=POD, workerTemplate=POD,
        restartPolicy={"enum": ["RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"]}))
ISSUER_REF = _object("name", name=TEXT, kind={"enum": ["Issuer", "ClusterIssuer"]}, group=TEXT)
CERTIFICATE = _object(
    "secretName issuerRef", secretName=TEXT, issuerRef=ISSUER_REF, dnsNames=_list(TEXT), commonName=TEXT,
    isCA={"type": "boolean"}, duration={"type": "string", "pattern": "^[0-9]+h$"},
    usages=_list({"enum": ["digital signature", "server auth", "client auth"]}),
    privateKey=_object(algorithm={"enum": ["RSA", "ECDSA"]}, size=COUNT, rotationPolicy={"enum": ["Never", "Always"]}))
POOL_PORT = _object("number", number={"type": "integer", "minimum": 1, "maximum": 65535})
POOL = _object(
    "selector targetPorts endpointPickerRef", selector=_object("matchLabels", matchLabels=LABELS),
    targetPorts={**_list(POOL_PORT), "maxItems": 8},
    endpointPickerRef=_object("name", group=TEXT, kind=TEXT, name=TEXT, port=POOL_PORT,
                              failureMode={"enum": ["FailOpen", "FailClose"]}))
ROUTE = _object(
    "parentRefs rules", parentRefs=_list(_object("name", name=TEXT)), rules=_list(_object(
        "backendRefs", matches=_list({"type": "object"}),
        backendRefs=_list(_object("name", group=TEXT, kind=TEXT, name=TEXT)), timeouts=_object(request=TEXT))))

SCHEMAS = {
    "monitoring.coreos.com/v1": {"ServiceMonitor": _object(
        "selector endpoints", selector=_object("matchLabels", matchLabels=LABELS), endpoints=_list(ENDPOINT))},
    "keda.sh/v1alpha1": {"ScaledObject": SCALED},
    "leaderworkerset.x-k8s.io/v1": {"LeaderWorkerSet": LEADER_WORKERS},
    "cert-manager.io/v1": {
        "Certificate": CERTIFICATE, "Issuer": _object(selfSigned=_object(), ca=_object("secretName", secretName=TEXT))},
    "inference.networking.k8s.io/v1": {"InferencePool": POOL},
    "gateway.networking.k8s.io/v1": {"HTTPRoute": ROUTE},
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
