"""Groups of the Helm chart: routers find them, both are told the same, and nothing is cut off when they change."""

import re
from typing import Any

import pytest
from click import Context

from penstock.launcher.cli import main as penstock
from penstock.launcher.config import LauncherConfig
from penstock.launcher.group_options import completed, refuse_options_of_shards
from penstock.launcher.launch import main as launcher
from penstock.router.fleet.groups_spec import GroupsSpec
from penstock.system.wire_tls import NAME
from tests.certificates import authority
from tests.deploy import chart
from tests.deploy.chart import Manifest, Refused, of_kind

SECRET: dict[str, Any] = {"existingSecret": "shard-tls"}
KEDA: dict[str, Any] = {
    "replicaCount": 2, "groups": {"enabled": True, "tls": SECRET, "numShard": 2, "partition": 1},
    "autoscaling": {"kind": "keda", "keda": {"serverAddress": "http://prometheus:9090"}},
    "hub": {"existingSecret": "hub"}, "auth": {"apiKeys": ["k"]}, "networkPolicy": {"enabled": True},
    "settings": {"KV_MEMORY": "4GiB", "MAX_TOTAL_TOKENS": 8192, "STEP_TIMEOUT": 90, "MAX_BATCH_SIZE": 16},
    "telemetry": {"otlpEndpoint": "http://collector:4317"}, "serviceMonitor": {"enabled": True},
}
NODES: dict[str, Any] = {
    "gpu": {"count": 2, "runtimeClassName": "nvidia"}, "model": {"id": "Qwen/Qwen2.5-72B-Instruct", "revision": "main"},
    "groups": {
        "enabled": True, "nodes": 3, "leaderWorkerSet": True, "allowClearExchange": True,
        "tls": {"certManager": {"enabled": True}}, "nodeSelector": {"gpu": "h100"}, "podLabels": {"tier": "model"}},
    "persistence": {"existingClaim": "models", "accessModes": ["ReadWriteMany"]}, "autoscaling": {"kind": "hpa"},
    "server": {"hostname": "::"}, "networkPolicy": {"enabled": True},
}
ISSUER: dict[str, Any] = {
    "groups": {"enabled": True, "podDisruptionBudget": {"enabled": False},
               "tls": {"certManager": {"enabled": True, "issuerRef": {"name": "ours", "kind": "ClusterIssuer"}}}},
    "persistence": {"enabled": False}}
VALUES = {"keda": KEDA, "nodes": NODES, "issuer": ISSUER}
FIELDS = {"metadata.name": "penstock-0", "metadata.labels['leaderworkerset.sigs.k8s.io/group-index']": "0",
          "status.podIP": "10.0.0.1"}
"""What pods are told of themselves."""
OF_LEADER_WORKER_SET = {"LWS_WORKER_INDEX": "2", "LWS_LEADER_ADDRESS": "penstock-0-groups-0.penstock-0-groups.models"}


@pytest.fixture(scope="module")
def charts() -> dict[str, list[Manifest]]:
    """The manifests of each set of values."""
    return {name: chart.manifests(values) for name, values in VALUES.items()}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a pod, with files that are there in place of those of the secret."""
    tls = authority(tmp_path_factory.mktemp("tls") / "ca").issue("pod")
    return {"SHARD_TLS_CA": str(tls.ca), "SHARD_TLS_CERT": str(tls.cert), "SHARD_TLS_KEY": str(tls.key)}


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    [found] = [manifest for manifest in of_kind(manifests, kind) if manifest["metadata"]["name"] == name]
    return found


def templates(manifests: list[Manifest]) -> list[Manifest]:
    """The pods of the first router's groups: one, or the leader and the workers."""
    for manifest in manifests:
        spec = manifest.get("spec", {})
        if manifest["kind"] == "StatefulSet" and manifest["metadata"]["name"] == "penstock-0-groups":
            return [spec["template"]]
        if manifest["kind"] == "LeaderWorkerSet":
            return [spec["leaderWorkerTemplate"][f"{role}Template"] for role in ("leader", "worker")]
    raise AssertionError("there are no groups")


def router(manifests: list[Manifest]) -> Manifest:
    return named(manifests, "StatefulSet", "penstock")


def container(template: Manifest) -> dict[str, Any]:
    [found] = template["spec"]["containers"]
    return dict(found)


def told(container: dict[str, Any], certificate: dict[str, str]) -> dict[str, str]:
    """A container's variables as its process gets them."""
    given: dict[str, str] = dict(OF_LEADER_WORKER_SET)
    for name, value in chart.variables(container).items():
        given[name] = re.sub(r"\$\((\w+)\)", lambda match: given[match[1]], FIELDS.get(value, value))
    return {name: value for name, value in given.items() if name not in OF_LEADER_WORKER_SET} | certificate


@pytest.mark.parametrize("name", VALUES)
def test_manifests_are_valid(charts: dict[str, list[Manifest]], name: str) -> None:
    for manifest in charts[name]:
        chart.check(manifest)
        if manifest["kind"] == "LeaderWorkerSet":
            for template in templates([manifest]):
                chart.check({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": template["spec"]})


def test_each_router_has_groups_of_its_own(charts: dict[str, list[Manifest]]) -> None:
    found = {name: sorted(f"{manifest['kind']} {manifest['metadata']['name']}" for manifest in manifests
                          if manifest["metadata"]["name"].endswith("-groups")) for name, manifests in charts.items()}
    assert found == {
        "keda": ["NetworkPolicy penstock-groups", *(
            f"{kind} penstock-{number}-groups" for kind in
            ("PodDisruptionBudget", "ScaledObject", "Service", "StatefulSet") for number in range(2))],
        "nodes": ["HorizontalPodAutoscaler penstock-0-groups", "LeaderWorkerSet penstock-0-groups",
                  "NetworkPolicy penstock-groups", "PodDisruptionBudget penstock-0-groups"],
        "issuer": ["Service penstock-0-groups", "StatefulSet penstock-0-groups"]}


@pytest.mark.parametrize("name", VALUES)
def test_a_router_finds_the_pods_of_its_groups_and_no_others(charts: dict[str, list[Manifest]], name: str) -> None:
    server = container(router(charts[name])["spec"]["template"])
    [groups] = [argument.removeprefix("--groups=") for argument in server["args"]]
    spec = GroupsSpec.parse(groups.replace("$(POD_NAME)", "penstock-0"))
    assert spec.name == ("penstock-0-groups", 4000)
    if name != "nodes":  # else LeaderWorkerSet makes the service, with the set's name
        service = named(charts[name], "Service", "penstock-0-groups")["spec"]
        assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
        assert named(charts[name], "StatefulSet", "penstock-0-groups")["spec"]["serviceName"] == "penstock-0-groups"
        selected = service["selector"].items()
        assert [labels["penstock/router"] for labels in map(labels_of, of_kind(charts[name], "StatefulSet"))
                if labels.items() >= selected] == ["penstock-0"]


def labels_of(workload: Manifest) -> dict[str, str]:
    return dict(workload["spec"]["template"]["metadata"]["labels"])


@pytest.mark.parametrize("name", VALUES)
def test_clients_and_monitors_reach_routers_alone(charts: dict[str, list[Manifest]], name: str) -> None:
    selector = named(charts[name], "Service", "penstock")["spec"]["selector"]
    assert labels_of(router(charts[name])).items() >= selector.items()
    for template in templates(charts[name]):
        assert not template["metadata"]["labels"].items() >= selector.items()


@pytest.mark.parametrize("name", VALUES)
def test_the_launcher_obeys_the_variables_of_a_group(
    charts: dict[str, list[Manifest]], name: str, certificate: dict[str, str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = penstock.commands["group"]
    known = {option.envvar for option in command.params} | {
        "HF_HOME", "HOME", "XDG_CACHE_HOME", "HF_TOKEN", "GROUP_INDEX"}
    for number, template in enumerate(templates(charts[name])):
        assert container(template)["command"] == ["tini", "--", "penstock", "group"]
        with monkeypatch.context() as patch:
            for variable, value in told(container(template), certificate).items():
                assert variable in known
                patch.setenv(variable, value)
            patch.setenv("MODEL_ID", "m")
            place = LauncherConfig.from_options(completed(command.make_context("group", []))).place
        assert place is not None
        if name == "keda":
            assert (place.name, place.listens_at(0), place.num_shards) == ("penstock-0", "0.0.0.0:4000", 2)
        if name == "nodes":
            assert (place.name, place.port, place.num_shards, place.nnodes) == ("penstock-0-groups-0", 4000, 6, 3)
            assert place.host == "::"
            assert place.master == (["10.0.0.1", OF_LEADER_WORKER_SET["LWS_LEADER_ADDRESS"]][number], 29500)
            assert place.allow_clear_exchange


@pytest.mark.parametrize("name", VALUES)
def test_the_launcher_obeys_the_variables_of_a_router(
    charts: dict[str, list[Manifest]], name: str, certificate: dict[str, str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = container(router(charts[name])["spec"]["template"])
    variables = told(server, certificate)
    known = {*chart.launcher_variables(), "HF_HOME", "HOME", "XDG_CACHE_HOME", "HF_TOKEN", "POD_NAME"}
    assert set(variables) <= known
    for variable, value in ({"MODEL_ID": "m"} | variables).items():
        monkeypatch.setenv(variable, value)
    context: Context = launcher.make_context("launcher", [
        argument.replace("$(POD_NAME)", variables["POD_NAME"]) for argument in server["args"]])
    refuse_options_of_shards(context)
    assert context.params["groups"] == "dns:penstock-0-groups:4000"
    assert context.params["shard_tls_ca"] is not None


def test_a_setting_reaches_those_whom_it_concerns(charts: dict[str, list[Manifest]]) -> None:
    server = chart.variables(container(router(charts["keda"])["spec"]["template"]))
    [template] = templates(charts["keda"])
    group = chart.variables(container(template))
    both = {"STEP_TIMEOUT": "90", "MAX_BATCH_SIZE": "16", "OTLP_ENDPOINT": "http://collector:4317",
            "HF_TOKEN": "hub/token"}
    assert server.items() >= both.items()
    assert group.items() >= both.items()
    assert {"KV_MEMORY", "NUM_SHARD"} & set(server) == set()
    assert {"MAX_TOTAL_TOKENS", "API_KEY_FILE", "PORT", "STRICT_STREAMING_ERRORS"} & set(group) == set()


@pytest.mark.parametrize("name", VALUES)
def test_every_mount_has_its_volume(charts: dict[str, list[Manifest]], name: str) -> None:
    for template in [router(charts[name])["spec"]["template"], *templates(charts[name])]:
        volumes = {volume["name"] for volume in template["spec"]["volumes"]}
        if name == "keda" and template != router(charts[name])["spec"]["template"]:
            spec = named(charts[name], "StatefulSet", "penstock-0-groups")["spec"]
            volumes |= {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
        assert {mount["name"] for mount in container(template)["volumeMounts"]} == volumes


def test_gpus_are_those_of_groups(charts: dict[str, list[Manifest]]) -> None:
    template = router(charts["nodes"])["spec"]["template"]
    assert "runtimeClassName" not in template["spec"]
    assert not container(template)["image"].endswith("-cuda")
    assert "nvidia.com/gpu" not in container(template)["resources"]["limits"]
    for each in templates(charts["nodes"]):
        assert container(each)["resources"]["limits"]["nvidia.com/gpu"] == 2
        assert container(each)["image"].endswith("-cuda")
        assert (each["spec"]["runtimeClassName"], each["spec"]["nodeSelector"]) == ("nvidia", {"gpu": "h100"})


@pytest.mark.parametrize("name", VALUES)
def test_a_group_drains_before_it_is_killed_and_has_no_rights(charts: dict[str, list[Manifest]], name: str) -> None:
    for template in templates(charts[name]):
        drain = int(chart.variables(container(template))["GRACEFUL_TERMINATION_TIMEOUT"])
        assert drain + 15 <= template["spec"]["terminationGracePeriodSeconds"]
        assert template["spec"]["securityContext"]["runAsNonRoot"]
        assert not template["spec"]["automountServiceAccountToken"]
        assert container(template)["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def test_groups_are_changed_one_after_another(charts: dict[str, list[Manifest]]) -> None:
    spec = named(charts["keda"], "StatefulSet", "penstock-0-groups")["spec"]
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    assert spec["podManagementPolicy"] == "Parallel"
    [nodes] = of_kind(charts["nodes"], "LeaderWorkerSet")
    assert nodes["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"] == {
        "partition": 0, "maxUnavailable": 1, "maxSurge": 0}
    assert router(charts["keda"])["spec"]["replicas"] == 2
    for manifest in (named(charts["keda"], "StatefulSet", "penstock-0-groups"), nodes):
        assert "replicas" not in manifest["spec"]  # which would undo what was scaled at each upgrade


def test_groups_are_scaled_by_the_series_of_their_router(charts: dict[str, list[Manifest]]) -> None:
    scaled = named(charts["keda"], "ScaledObject", "penstock-1-groups")["spec"]
    assert scaled["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "penstock-1-groups"}
    assert [trigger["metadata"]["query"] for trigger in scaled["triggers"]] == [
        'sum(tgi_queue_size{namespace="models",pod="penstock-1"})',
        'avg(penstock_kv_usage{namespace="models",pod="penstock-1"})']
    [hpa] = of_kind(charts["nodes"], "HorizontalPodAutoscaler")
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "penstock-0"}
    assert hpa["spec"]["scaleTargetRef"]["kind"] == "LeaderWorkerSet"
    assert [metric["object"] for metric in hpa["spec"]["metrics"]] == [
        {"describedObject": pod, "metric": {"name": "tgi_queue_size"},
         "target": {"type": "AverageValue", "averageValue": "4"}},
        {"describedObject": pod, "metric": {"name": "penstock_kv_usage"}, "target": {"type": "Value", "value": "0.8"}}]
    for behavior in (hpa["spec"]["behavior"], scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]):
        assert behavior["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 120}]


@pytest.mark.parametrize(("name", "secret"), [("keda", "shard-tls"), ("nodes", "penstock-shard-tls")])
def test_both_ends_have_the_certificate_that_was_made(
    charts: dict[str, list[Manifest]], name: str, secret: str,
) -> None:
    for template in [router(charts[name])["spec"]["template"], *templates(charts[name])]:
        [volume] = [volume for volume in template["spec"]["volumes"] if volume["name"] == "shard-tls"]
        assert volume["secret"]["secretName"] == secret
    certificates = of_kind(charts[name], "Certificate")
    assert [each["spec"].get("dnsNames") for each in certificates] == ([None, [NAME]] if name == "nodes" else [])


def test_an_issuer_of_ones_own_takes_the_place_of_the_charts(charts: dict[str, list[Manifest]]) -> None:
    [made] = of_kind(charts["issuer"], "Certificate")
    assert made["spec"]["issuerRef"] == {"name": "ours", "kind": "ClusterIssuer"}
    assert not of_kind(charts["issuer"], "Issuer")


@pytest.mark.parametrize("name", ["keda", "nodes"])
def test_only_routers_reach_shards(charts: dict[str, list[Manifest]], name: str) -> None:
    policy = named(charts[name], "NetworkPolicy", "penstock-groups")["spec"]
    for template in templates(charts[name]):
        assert template["metadata"]["labels"].items() >= policy["podSelector"]["matchLabels"].items()
    first = policy["ingress"][0]
    assert labels_of(router(charts[name])).items() >= first["from"][0]["podSelector"]["matchLabels"].items()
    assert first["ports"] == [{"port": 4000, "endPort": 4001}]
    assert len(policy["ingress"]) == (2 if name == "nodes" else 1)


QUERY = {"serverAddress": "http://prometheus:9090", "query": "sum(up)"}


def groups(**values: Any) -> dict[str, Any]:
    return {"groups": {"enabled": True, "tls": SECRET} | values}


@pytest.mark.parametrize(("values", "reason"), [
    ({"groups": {"enabled": True}}, "groups.tls.existingSecret is missing"),
    (groups(tls=SECRET | {"certManager": {"enabled": True}}), "groups.tls.certManager.enabled are both given"),
    (groups(nodes=2), "groups.nodes is 2: groups on several nodes are kept together by a LeaderWorkerSet"),
    (groups(leaderWorkerSet=True), "groups.leaderWorkerSet is true, but groups.nodes is 1"),
    (groups(nodes=2, leaderWorkerSet=True, numShard=3), "groups.numShard is 3, but must be a multiple of groups.nodes"),
    (groups(nodes=2, leaderWorkerSet=True), "groups.nodes is 2: give persistence.existingClaim with ReadWriteMany"),
    (groups(nodes=2, leaderWorkerSet=True) | {"gpu": {"count": 1}}, "Set groups.allowClearExchange"),
    (groups(nodes=2, leaderWorkerSet=True, port=29502), "groups.masterPort is 29500, and the shards exchange"),
    (groups(numShard=4) | {"gpu": {"count": 2}}, "groups.numShard is 4, but each of 1 nodes has gpu.count 2"),
    (groups(port=65535, numShard=2), "groups.port is 65535, but the shards need ports up to 65536"),
    (groups(shutdown={"drainSeconds": 300}), "groups.shutdown.graceSeconds must be at least 315"),
    (groups(env=[{"name": "LISTEN", "value": "x"}]), "groups.env has LISTEN, which the chart sets"),
    (groups(resources={"limits": {"nvidia.com/gpu": 1}}), "groups.resources.limits has nvidia.com/gpu"),
    (groups(colour="red"), "colour"),
    (groups() | {"settings": {"NUM_SHARD": 2}}, "settings.NUM_SHARD is given, which follows from the values of groups"),
    (groups() | {"settings": {"LORA_ADAPTERS": "a=b"}}, "settings.LORA_ADAPTERS needs settings.MAX_ADAPTER_MEMORY"),
    (groups() | {"settings": {"LORA_ADAPTERS": "a=org/a", "MAX_ADAPTER_MEMORY": "1GiB"}},
     "settings.LORA_ADAPTERS needs a volume in which routers and groups both find the adapters"),
    (groups() | {"persistence": {"existingClaim": "models"}}, "which routers and groups share"),
    (groups() | {"fullnameOverride": "x" * 43}, "is longer than 42 characters"),
    (groups() | {"replicaCount": 2, "autoscaling": {"kind": "keda", "keda": QUERY}},
     "autoscaling.keda.query is one query, but replicaCount is 2"),
], ids=str)
def test_values_that_cannot_work_are_refused_by_name(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused, match=re.escape(reason)):
        chart.render(values)
