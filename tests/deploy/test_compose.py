"""The compose files are valid, say what they promise, and name only options that the launcher has."""

import re
from pathlib import Path

import click
import pytest
import yaml

from penstock.launcher.cli import main as penstock
from penstock.launcher.config import LauncherConfig
from penstock.launcher.group_options import completed, refuse_options_of_shards
from penstock.launcher.launch import main
from penstock.launcher.options import OPTIONS
from tests.deploy.chart import launcher_variables
from tests.deploy.commands import composed, run
from tests.paths import ROOT

FOLDER = ROOT / "deploy/compose"
PROFILES = {
    "": {"penstock"}, "gpu": {"penstock", "penstock-gpu"}, "embeddings": {"penstock", "penstock-embeddings"},
    "tls": {"penstock", "penstock-tls"},
    "replicas": {"penstock", "penstock-b", "balancer"}, "groups": {"penstock", "certificates", "group", "router"},
}
MONITORS = {"prometheus", "grafana", "collector", "jaeger"}
EXAMPLE = dict(line.split("=", 1) for line in (FOLDER / ".env.example").read_text().splitlines()
               if line and not line.startswith("#"))
OF_COMPOSE = {"COMPOSE_PROFILES", "COMPOSE_PROJECT_NAME"}
OF_OTHERS = {"HF_TOKEN"}
"""Variables in the server's environment that are read by libraries."""


def written() -> dict[str, dict]:
    """Returns the services as they are in the file, with the variables' names."""
    return yaml.safe_load((FOLDER / "docker-compose.yml").read_text())["services"]


def filled(value: object) -> str:
    """Puts the defaults of variables in."""
    return re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", str(value))


SERVERS_OF_TGI = {"plain": "tgi", "reservations": "text-generation-inference", "shared_memory": "llm"}
SERVERS = [name for name in written() if name.startswith("penstock")]
OF_GROUPS = ["group", "router"]


def test_the_file_is_valid():
    flags = [argument for profile in PROFILES if profile for argument in ("--profile", profile)]
    services = composed(FOLDER, *flags)
    assert set(services) == MONITORS.union(*PROFILES.values())
    assert services["penstock"]["environment"]["STRICT_STREAMING_ERRORS"] == "true"
    assert services["group"].get("scale", services["group"].get("deploy", {}).get("replicas")) == 2
    assert services["penstock-gpu"]["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_starts_its_services_and_what_they_depend_on(profile):
    services = written()
    started = {name for name, service in services.items() if profile in service.get("profiles", [profile])}
    assert started == PROFILES[profile] | MONITORS
    assert started.issuperset(needed for name in started for needed in services[name].get("depends_on", ()))


def test_each_variable_is_in_the_example_with_its_default():
    variables = dict(re.findall(r"\$\{(\w+):?-([^}]*)\}", (FOLDER / "docker-compose.yml").read_text()))
    assert variables == {name: value for name, value in EXAMPLE.items() if name not in OF_COMPOSE}


@pytest.mark.parametrize("server", [*SERVERS, *OF_GROUPS])
def test_a_server_is_confined_and_given_time_to_end(server):
    service = written()[server]
    assert service["read_only"] is True
    assert filled(service["user"]) == "1000:1000"
    assert service["tmpfs"] == ["/tmp:exec"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    seconds = int(service["stop_grace_period"].removesuffix("s"))
    assert seconds >= service["environment"]["GRACEFUL_TERMINATION_TIMEOUT"] + 5
    assert ("healthcheck" in service) == (server == "group")  # the image has one of servers


@pytest.mark.parametrize("server", SERVERS)
def test_the_launcher_takes_the_environment_of_a_server(server, monkeypatch):
    environment = {name: filled(value) for name, value in written()[server]["environment"].items()}
    known = {variable for option in OPTIONS for variable in [option.envvar or []]
             for variable in ([variable] if isinstance(variable, str) else variable)}
    assert set(environment) - known == OF_OTHERS
    for variable in known:
        monkeypatch.delenv(variable, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    context = main.make_context("text-generation-launcher", [])
    assert isinstance(context, click.Context)
    config = LauncherConfig.from_options(context.params)
    model = EXAMPLE["EMBEDDING_MODEL_ID" if server == "penstock-embeddings" else "MODEL_ID"]
    assert (config.model_id, config.num_shard) == (model, 1)
    assert config.strict_streaming_errors
    assert (config.port, config.ssl_keyfile) == (
        (443, Path("/certificate/tls.key")) if server == "penstock-tls" else (3000, None))


@pytest.fixture
def pair(tmp_path, monkeypatch) -> Path:
    """The folder of the certificate that the compose file makes for routers and shards."""
    for option in OPTIONS:
        monkeypatch.delenv(str(option.envvar), raising=False)
    run("sh", str(FOLDER / "certificates.sh"), str(tmp_path / "tls"), folder=tmp_path, package="dash")
    return tmp_path / "tls"


def test_certificates_are_made_once(pair):
    before = (pair / "tls.crt").read_bytes()
    run("sh", str(FOLDER / "certificates.sh"), str(pair), folder=pair, package="dash")
    assert (pair / "tls.crt").read_bytes() == before
    assert {path.stat().st_mode & 0o777 for path in pair.iterdir()} == {0o600}


def test_no_server_finds_what_makes_more_certificates(tmp_path):
    [shell, flag, command] = written()["certificates"]["entrypoint"]
    command = command.replace("/data", str(tmp_path)).replace("/certificates.sh", str(FOLDER / "certificates.sh"))
    run(shell, flag, command, folder=tmp_path, package="dash")
    assert {"ca.crt", "tls.crt", "tls.key"} <= {path.name for path in (tmp_path / "shard-tls").iterdir()}
    assert not (tmp_path / "shard-tls/ca.key").exists()
    before = (tmp_path / "shard-tls/ca.crt").read_bytes()
    (tmp_path / "shard-tls/tls.crt").unlink()
    run(shell, flag, command, folder=tmp_path, package="dash")
    assert (tmp_path / "shard-tls/ca.crt").read_bytes() != before


def test_router_and_groups_fit_one_another(pair, monkeypatch):
    """The launcher takes what they are told, and the certificates; the router asks where the groups listen."""
    group, router = written()["group"], written()["router"]
    for service, name, command in ((group, "group", penstock.commands["group"]), (router, "router", main)):
        with monkeypatch.context() as patch:
            for variable, value in service["environment"].items():
                patch.setenv(variable, filled(value).replace("/data/shard-tls", str(pair)))
            assert set(service["environment"]) <= {*launcher_variables(), "LISTEN"} | OF_OTHERS
            context = command.make_context(name, service.get("command", []))
            options = completed(context) if name == "group" else context.params
            if name == "router":
                refuse_options_of_shards(context)
            config = LauncherConfig.from_options(options)
        assert config.shard_tls is not None
        assert set(service["depends_on"]) == {"certificates"}
    assert config.groups == f"dns:group:{group['environment']['LISTEN'].rpartition(':')[2]}"
    assert group["entrypoint"] == ["tini", "--", "penstock", "group"]


def test_images_are_built_on_the_same_base():
    [base] = re.findall(r"^ARG BASE_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert EXAMPLE["BASE_IMAGE"] == base


def test_the_balancer_takes_bodies_as_large_as_the_server_does():
    limit = next(option for option in OPTIONS if option.name == "payload_limit").default
    assert f"client_max_body_size {limit};" in (FOLDER / "nginx.conf").read_text()


def test_the_balancer_asks_the_servers_of_its_profile(tmp_path):
    text = (FOLDER / "nginx.conf").read_text().replace("/tmp/", f"{tmp_path}/")
    named = set(re.findall(r"server (penstock[\w-]*):80 ", text))
    assert named == PROFILES["replicas"] - {"balancer"}
    for name in named:
        text = text.replace(f"{name}:80", "127.0.0.1:80")
    (tmp_path / "nginx.conf").write_text(text)
    run("nginx", "-t", "-e", "stderr", "-c", str(tmp_path / "nginx.conf"), folder=tmp_path, package="nginx-light")


def test_prometheus_looks_for_every_server():
    jobs = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    found = {(name, each["port"], job.get("scheme", "http")) for job in jobs
             for each in job["dns_sd_configs"] for name in each["names"]}
    assert found == {(name, *((443, "https") if name == "penstock-tls" else (80, "http")))
                     for name in [*SERVERS, "router"]}


def test_spans_go_to_the_collector_and_from_it_to_jaeger():
    settings = yaml.safe_load((FOLDER / "otel-collector.yml").read_text())
    endpoint = filled(written()["penstock"]["environment"]["OTLP_ENDPOINT"])
    port = settings["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"].rpartition(":")[2]
    assert endpoint == f"http://collector:{port}"
    (pipeline,) = settings["service"]["pipelines"].values()
    for kind, names in pipeline.items():
        assert set(names) == set(settings[kind])
    assert settings["exporters"]["otlp"]["endpoint"] == "jaeger:4317"


def test_what_is_mounted_is_there():
    for service in written().values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith("./") or (FOLDER / source).exists(), volume


@pytest.mark.slow
@pytest.mark.parametrize("form", SERVERS_OF_TGI)
def test_a_compose_file_of_tgi_is_valid_with_our_image_in_its_image_line(form, tmp_path):
    folder = ROOT / "tests/deploy/tgi_compose" / form
    for file in folder.iterdir():
        text = file.read_text().replace("image: ghcr.io/huggingface/text-generation-inference:3.3.7", "image: penstock")
        (tmp_path / file.name).write_text(text)
    services = composed(tmp_path)
    assert [name for name, service in services.items() if service["image"] == "penstock"] == [SERVERS_OF_TGI[form]]
