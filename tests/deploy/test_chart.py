"""The Helm chart: its manifests are valid, its settings are the launcher's, and values that can't work are refused."""

import re
from typing import Any

import pytest

from penstock.launcher.launch import main
from penstock.launcher.option_types import NOTES
from tests.deploy import chart, manifests
from tests.deploy.chart import (
    CHART,
    SCHEMA,
    SET_ELSEWHERE,
    SETTINGS,
    Manifest,
    Refused,
    helm,
    launcher_variables,
    of_kind,
)

DIGEST = "sha256:" + "0" * 64
GPU: dict[str, Any] = {
    "kind": "StatefulSet", "replicaCount": 3, "gpu": {"count": 2, "runtimeClassName": "nvidia"},
    "image": {"digest": DIGEST, "pullSecrets": [{"name": "registry"}]},
    "model": {"id": "Qwen/Qwen2.5-7B-Instruct", "revision": "main"},
    "settings": {"MAX_TOTAL_TOKENS": 8192, "PAYLOAD_LIMIT": 20_000_000, "CUDA_MEMORY_FRACTION": 0.9,
                 "JSON_OUTPUT": False, "KV_MEMORY": "4GiB", "CUDA_GRAPHS": "1,2,4", "STEP_TIMEOUT": 90},
    "server": {"grpcPort": 8033}, "tls": {"existingSecret": "certificate"},
    "hub": {"token": "hf_abc"}, "auth": {"apiKeys": ["first", "second"], "metricsKey": "numbers"},
    "telemetry": {"otlpEndpoint": "http://collector:4317", "otlpServiceName": "chat"},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {"enabled": True, "ingressFrom": [{"podSelector": {"matchLabels": {"app": "web"}}}],
                      "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
    "persistence": {"storageClass": "fast", "size": "200Gi"}, "nodeSelector": {"gpu": "h100"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}], "priorityClassName": "serving",
}
KEDA: dict[str, Any] = {
    "autoscaling": {"kind": "keda", "maxReplicas": 8, "keda": {"serverAddress": "http://prometheus:9090"}},
    "persistence": {"existingClaim": "models", "accessModes": ["ReadWriteMany"]},
    "hub": {"existingSecret": "hub"},
    "auth": {"existingSecret": "keys", "metricsKeyKey": "metrics"}, "serviceMonitor": {"enabled": True},
    "env": [{"name": "LOG_LEVEL", "value": "debug"}], "args": ["--max-batch-size", "16"],
    "podAnnotations": {"team": "search"}, "podLabels": {"tier": "model"},
}
HPA: dict[str, Any] = {
    "autoscaling": {"kind": "hpa"}, "persistence": {"enabled": False},
    "env": [{"name": "PENSTOCK_DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "batches", "key": "url"}}}],
    "podDisruptionBudget": {"enabled": False}, "serviceAccount": {"create": False},
    "shutdown": {"preStopSeconds": 0}, "service": {"type": "LoadBalancer", "annotations": {"tier": "public"}},
}
VALUES = {"defaults": {}, "gpu": GPU, "keda": KEDA, "hpa": HPA}


@pytest.fixture(scope="module")
def charts() -> dict[str, list[Manifest]]:
    """The manifests of each set of values."""
    return {name: chart.manifests(values) for name, values in VALUES.items()}


def workload(manifests: list[Manifest]) -> Manifest:
    [found] = [manifest for manifest in manifests if manifest["kind"] in ("Deployment", "StatefulSet")]
    return found


def container(manifests: list[Manifest]) -> dict[str, Any]:
    [found] = workload(manifests)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(manifests: list[Manifest]) -> dict[str, str]:
    return chart.variables(container(manifests))


def test_lint_finds_nothing() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, values=GPU)


@pytest.mark.parametrize("name", VALUES)
def test_manifests_are_valid(charts: dict[str, list[Manifest]], name: str) -> None:
    for manifest in charts[name]:
        chart.check(manifest)


def test_each_set_of_values_makes_the_kinds_that_it_asks_for(charts: dict[str, list[Manifest]]) -> None:
    kinds = {name: sorted(manifest["kind"] for manifest in manifests) for name, manifests in charts.items()}
    assert kinds == {
        "defaults": ["Deployment", "PersistentVolumeClaim", "PodDisruptionBudget", "Service", "ServiceAccount"],
        "gpu": ["NetworkPolicy", "PodDisruptionBudget", "Secret", "Service", "Service", "ServiceAccount",
                "ServiceMonitor", "StatefulSet"],
        "keda": ["Deployment", "PodDisruptionBudget", "ScaledObject", "Service", "ServiceAccount", "ServiceMonitor"],
        "hpa": ["Deployment", "HorizontalPodAutoscaler", "Service"]}


def test_the_settings_in_the_schema_are_those_of_the_launcher() -> None:
    assert SCHEMA.read_text() == chart.schema_text(), "run make manifests"
    assert SETTINGS.read_text() == chart.settings_text(), "run make manifests"
    assert set(launcher_variables()) >= SET_ELSEWHERE


@pytest.mark.parametrize("name", VALUES)
def test_the_launcher_obeys_every_variable(
    charts: dict[str, list[Manifest]], name: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {*launcher_variables(), "HF_HOME", "HOME", "XDG_CACHE_HOME", "HF_TOKEN", "LOG_LEVEL"}
    variables = environment(charts[name])
    assert set(variables) <= known
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    context = main.make_context("launcher", container(charts[name]).get("args", []))
    assert not context.meta.get(NOTES)  # such as one that says that a variable has no effect
    assert context.params["port"] == 8080
    assert context.params["strict_streaming_errors"]


def test_numbers_and_switches_reach_the_launcher_as_they_were_written(charts: dict[str, list[Manifest]]) -> None:
    expected = {"MODEL_ID": "Qwen/Qwen2.5-7B-Instruct", "REVISION": "main", "NUM_SHARD": "2", "DEVICE": "cuda",
                "PAYLOAD_LIMIT": "20000000", "CUDA_MEMORY_FRACTION": "0.9", "JSON_OUTPUT": "false",
                "STRICT_STREAMING_ERRORS": "true", "KV_MEMORY": "4GiB", "CUDA_GRAPHS": "1,2,4", "GRPC_PORT": "8033",
                "OTLP_ENDPOINT": "http://collector:4317", "HF_TOKEN": "penstock/hf-token"}
    assert environment(charts["gpu"]).items() >= expected.items()


def test_a_replica_is_drained_before_it_is_killed(charts: dict[str, list[Manifest]]) -> None:
    pod = workload(charts["defaults"])["spec"]["template"]["spec"]
    [verb, seconds] = container(charts["defaults"])["lifecycle"]["preStop"]["exec"]["command"]
    drain = int(environment(charts["defaults"])["GRACEFUL_TERMINATION_TIMEOUT"])
    assert (verb, pod["terminationGracePeriodSeconds"]) == ("sleep", 120)
    assert int(seconds) > 0
    assert int(seconds) + drain < 120


def test_the_container_has_no_rights(charts: dict[str, list[Manifest]]) -> None:
    pod = workload(charts["gpu"])["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(charts["gpu"])["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert not pod["enableServiceLinks"]
    assert not pod["automountServiceAccountToken"]


def test_every_mount_has_its_volume(charts: dict[str, list[Manifest]]) -> None:
    for found in charts.values():
        spec = workload(found)["spec"]
        volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
        assert {mount["name"] for mount in container(found)["volumeMounts"]} == volumes


def test_probes_speak_tls_and_outlast_a_restart_of_the_shards(charts: dict[str, list[Manifest]]) -> None:
    gpu = container(charts["gpu"])
    for probe, path in ("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz"):
        assert gpu[probe]["httpGet"] == {"path": path, "port": "http", "scheme": "HTTPS"}
    assert gpu["livenessProbe"]["periodSeconds"] * gpu["livenessProbe"]["failureThreshold"] >= 2 * 90
    assert gpu["startupProbe"]["periodSeconds"] * gpu["startupProbe"]["failureThreshold"] >= 3600


def test_gpus_are_limits(charts: dict[str, list[Manifest]]) -> None:
    assert container(charts["gpu"])["resources"]["limits"] == {"memory": "8Gi", "nvidia.com/gpu": 2}
    assert "nvidia.com/gpu" not in container(charts["defaults"])["resources"]["limits"]


def test_keys_come_from_files_and_secrets(charts: dict[str, list[Manifest]]) -> None:
    [secret] = of_kind(charts["gpu"], "Secret")
    assert secret["stringData"] == {"hf-token": "hf_abc", "api-keys": "first\nsecond", "metrics-key": "numbers"}
    assert environment(charts["gpu"])["API_KEY_FILE"] == "/etc/penstock/keys/api-keys"
    assert environment(charts["keda"])["METRICS_KEY"] == "keys/metrics"
    [monitor] = of_kind(charts["keda"], "ServiceMonitor")
    assert monitor["spec"]["endpoints"][0]["authorization"]["credentials"] == {"name": "keys", "key": "metrics"}


def test_the_monitor_selects_one_service(charts: dict[str, list[Manifest]]) -> None:
    [monitor] = of_kind(charts["gpu"], "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    selected = [service["metadata"]["name"] for service in of_kind(charts["gpu"], "Service")
                if service["metadata"]["labels"].items() >= wanted]
    assert selected == ["penstock"]


def test_replicas_are_scaled_by_the_queue(charts: dict[str, list[Manifest]]) -> None:
    [scaled] = of_kind(charts["keda"], "ScaledObject")
    [hpa] = of_kind(charts["hpa"], "HorizontalPodAutoscaler")
    assert [(trigger["metricType"], trigger["metadata"]["query"], trigger["metadata"]["threshold"])
            for trigger in scaled["spec"]["triggers"]] == [
        ("AverageValue", 'sum(tgi_queue_size{namespace="models",service="penstock"})', "4"),
        ("Value", 'avg(penstock_kv_usage{namespace="models",service="penstock"})', "0.8")]
    assert [metric["pods"] for metric in hpa["spec"]["metrics"]] == [
        {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": value}}
        for name, value in (("tgi_queue_size", "4"), ("penstock_kv_usage", "0.8"))]
    for name in "keda", "hpa":
        assert "replicas" not in workload(charts[name])["spec"]  # which would undo what was scaled at each upgrade


def test_values_of_other_names_and_types_are_refused_by_name() -> None:
    """By the schema, all at once."""
    with pytest.raises(Refused) as refused:
        chart.render({
            "replicas": 2, "kind": "DaemonSet", "server": {"port": 80}, "gpu": {"count": -1},
            "persistence": {"size": "50 GB"}, "autoscaling": {"minReplicas": 0},
            "settings": {"MAX_INPUT_TOKENZ": 5, "MAX_INPUT_TOKENS": "many", "CUDA_MEMORY_FRACTION": 1.5,
                         "QUANTIZE": "int3", "PENSTOCK_DATABASE_URL": "postgresql://a:b@c/d"}})
    assert {line.partition(" must be one of")[0] for line in str(refused.value).splitlines() if line[:2] == "- "} == {
        "- (root): Additional property replicas is not allowed",
        "- autoscaling.minReplicas: Must be greater than or equal to 1",
        "- gpu.count: Must be greater than or equal to 0",
        "- kind: kind",
        r"- persistence.size: Does not match pattern '^[0-9]+(\.[0-9]+)?([kMGTPE]|[KMGTPE]i)?$'",
        "- server.port: Must be greater than or equal to 1024",
        "- settings: Additional property MAX_INPUT_TOKENZ is not allowed",
        "- settings: Additional property PENSTOCK_DATABASE_URL is not allowed",
        "- settings.CUDA_MEMORY_FRACTION: Must be less than or equal to 1",
        "- settings.MAX_INPUT_TOKENS: Invalid type. Expected: integer, given: string",
        "- settings.QUANTIZE: settings.QUANTIZE"}


@pytest.mark.parametrize(("values", "reason"), [
    ({"autoscaling": {"kind": "keda"}, "persistence": {"enabled": False}},
     "autoscaling.keda.serverAddress is missing"),
    ({"autoscaling": {"kind": "hpa", "minReplicas": 5}, "persistence": {"enabled": False}},
     "autoscaling.minReplicas must be at most autoscaling.maxReplicas, 4, not 5"),
    ({"shutdown": {"drainSeconds": 300}}, "shutdown.graceSeconds must be at least 320"),
    ({"replicaCount": 2}, "replicaCount is 2, but replicas share the claim penstock"),
    ({"kind": "StatefulSet", "replicaCount": 2, "settings": {"DATA_DIR": "/data/batches"}},
     "settings.DATA_DIR is given, but replicaCount is 2: each replica would have other files and batches"),
    ({"settings": {"DATA_DIR": "/data/batches"}, "persistence": {"accessModes": ["ReadWriteMany"]}},
     "settings.DATA_DIR is given, but persistence.accessModes have ReadWriteMany: SQLite's file breaks"),
    ({"settings": {"DATA_DIR": "/data/batches"}, "persistence": {"enabled": False}},
     "settings.DATA_DIR is given, but persistence.enabled is false: /data ends with the router's pod"),
    ({"autoscaling": {"kind": "hpa"}}, "autoscaling.maxReplicas is 4, but replicas share the claim penstock"),
    ({"persistence": {"enabled": False, "existingClaim": "models"}}, "persistence.enabled is false"),
    ({"hub": {"token": "t", "existingSecret": "s"}}, "hub.token and hub.existingSecret are both given"),
    ({"auth": {"apiKeys": ["k"], "existingSecret": "s"}}, "auth.existingSecret is given beside auth.apiKeys"),
    ({"auth": {"metricsKeyKey": "m"}}, "auth.metricsKeyKey names an entry of auth.existingSecret"),
    ({"gpu": {"count": 2}, "settings": {"NUM_SHARD": 4}}, "settings.NUM_SHARD is 4, but gpu.count is 2"),
    ({"gpu": {"count": 2}, "settings": {"DEVICE": "cpu"}}, "settings.DEVICE is cpu, but gpu.count is 2"),
    ({"resources": {"limits": {"nvidia.com/gpu": 1}}}, "give the number of GPUs as gpu.count"),
    ({"server": {"grpcPort": 8080}}, "server.grpcPort must differ from server.port, 8080"),
    ({"env": [{"name": "PORT", "value": "1"}]}, "env has PORT, which the chart sets"),
], ids=str)
def test_values_that_cannot_work_are_refused_by_name(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused, match=re.escape(reason)):
        chart.render(values)


@pytest.mark.parametrize("name", manifests.PLAIN)
def test_plain_manifests_are_those_of_the_chart(name: str) -> None:
    assert (manifests.FOLDER / name).read_text() == manifests.text(name), "run make manifests"
