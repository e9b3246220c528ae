"""OpenTelemetry's standard variables."""

import re

import pytest

from penstock.launcher.launch import main
from penstock.launcher.option_types import NOTES
from penstock.system.arguments import InvalidArgument

HERE, THERE = "http://here:4317", "http://there:4317"


@pytest.mark.parametrize(("variables", "arguments", "expected"), [
    ({}, [], None),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, [], HERE),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": THERE}, [], THERE),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTLP_ENDPOINT": THERE}, [], THERE),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTLP_ENDPOINT": ""}, [], HERE),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, ["--otlp-endpoint", THERE], THERE),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_TRACES_EXPORTER": "none"}, [], None),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_SDK_DISABLED": "true"}, [], None),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, [], HERE),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, [], None)])
def test_the_collector(
    variables: dict[str, str], arguments: list[str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    context = main.make_context("launcher", arguments)
    assert context.params["otlp_endpoint"] == expected
    assert NOTES not in context.meta


@pytest.mark.parametrize("address", ["here:4317", "http://[::1]:4317", "https://here", "http://here:4317/path"])
def test_an_address_is_taken(address: str) -> None:
    assert main.make_context("launcher", ["--otlp-endpoint", address]).params["otlp_endpoint"] == address


@pytest.mark.parametrize("address", [
    "ftp://here:4317", "http://", "here:port", "http://here:70000", "http://[::1", "unix:///a", ":4317"])
def test_what_is_no_address_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = r"must be http://HOST:PORT, https://HOST:PORT or HOST:PORT. Given: " + re.escape(address)
    with pytest.raises(InvalidArgument, match=f"`otlp_endpoint` {expected}"):
        main.make_context("launcher", ["--otlp-endpoint", address])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    with pytest.raises(InvalidArgument, match=f"OTEL_EXPORTER_OTLP_ENDPOINT {expected}"):
        main.make_context("launcher", [])


def test_a_collector_of_another_protocol_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://here:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    context = main.make_context("launcher", [])
    assert context.params["otlp_endpoint"] is None
    assert context.meta[NOTES] == [
        "nothing is traced: the collector of OTEL_EXPORTER_OTLP_ENDPOINT is to get http/protobuf by "
        "OTEL_EXPORTER_OTLP_PROTOCOL, and spans are sent by grpc alone"]


@pytest.mark.parametrize(("variables", "arguments", "expected"), [
    ({}, [], "text-generation-inference.router"),
    ({"OTEL_SERVICE_NAME": "a"}, [], "a"),
    ({"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=x,service.name=b%20c"}, [], "b c"),
    ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=b", "OTEL_SERVICE_NAME": "a"}, [], "a"),
    ({"OTEL_SERVICE_NAME": "a", "OTLP_SERVICE_NAME": "d"}, [], "d"),
    ({"OTEL_SERVICE_NAME": "a"}, ["--otlp-service-name", "e"], "e")])
def test_the_name_of_the_service(
    variables: dict[str, str], arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main.make_context("launcher", arguments).params["otlp_service_name"] == expected
