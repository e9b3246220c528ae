"""The examples for KServe, SageMaker and the Gateway API: their manifests have known fields, their variables are the
launcher's, and their series those of the server."""

import os
import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import chart, crds
from tests.deploy.chart import Manifest, launcher_variables
from tests.deploy.test_boards import SERIES
from tests.paths import ROOT

KNOWN = {*launcher_variables(), "HF_HOME", "HOME"}
ENTRY_POINT = ROOT / "deploy/sagemaker-entrypoint.sh"
CREATE = ["create", "chat", "--image", "penstock:sagemaker", "--role", "arn:aws:iam::1:role/r",
          "--model", "Qwen/Qwen3-8B"]


@pytest.fixture(scope="module")
def kserve() -> dict[str, Manifest]:
    """The manifests for KServe, by kind."""
    text = (ROOT / "deploy/kserve/inference.yaml").read_text()
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def sagemaker() -> dict[str, Any]:
    """What the script for SageMaker defines."""
    return runpy.run_path(str(ROOT / "deploy/sagemaker/endpoint.py"))


def test_kserves_manifests_have_known_fields(kserve: dict[str, Manifest]) -> None:
    assert set(kserve) == {"ServingRuntime", "InferenceService"}
    for manifest in kserve.values():
        crds.validate(manifest)


def test_kserves_variables_are_the_launchers(kserve: dict[str, Manifest]) -> None:
    [container] = kserve["ServingRuntime"]["spec"]["containers"]
    model = kserve["InferenceService"]["spec"]["predictor"]["model"]
    assert {variable["name"] for variable in container["env"] + model["env"]} <= KNOWN
    assert model["runtime"] == kserve["ServingRuntime"]["metadata"]["name"]


def test_a_picker_reads_series_that_the_server_exposes() -> None:
    manifests = [*yaml.safe_load_all((ROOT / "deploy/kubernetes/inferencepool.yaml").read_text())]
    for manifest in manifests:
        chart.check(manifest)
    pool, route, configuration = manifests
    assert route["spec"]["rules"][0]["backendRefs"][0]["name"] == pool["metadata"]["name"]
    plugins = yaml.safe_load(configuration["data"]["config.yaml"])["plugins"]
    [engine] = next(plugin["parameters"]["engineConfigs"] for plugin in plugins
                    if plugin["type"] == "core-metrics-extractor")
    read = {spec for field, spec in engine.items() if field.endswith("Spec")}
    assert len(read) == 5
    assert {name: labels for name, labels in SERIES.items() if name in read} == {name: {} for name in read}
    [server] = [manifest for manifest in chart.manifests({}) if manifest["kind"] == "Deployment"]
    pod = server["spec"]["template"]
    assert pod["metadata"]["labels"].items() >= pool["spec"]["selector"]["matchLabels"].items()
    assert pool["spec"]["targetPorts"] == [{"number": pod["spec"]["containers"][0]["ports"][0]["containerPort"]}]


def test_sagemakers_entry_point_takes_the_variables(sagemaker: dict[str, Any], tmp_path: Path) -> None:
    """The endpoint's container, with a launcher that prints its environment instead of serving."""
    arguments = sagemaker["parser"]().parse_args([*CREATE, "--gpus", "4", "--set", "MAX_TOTAL_TOKENS=8192"])
    given = sagemaker["model"](arguments)["PrimaryContainer"]["Environment"]
    launcher = tmp_path / "text-generation-launcher"
    launcher.write_text("#!/bin/sh\nexec env\n")
    launcher.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **given}
    done = subprocess.run([ENTRY_POINT, "serve"], env=environment, capture_output=True, text=True, check=True)
    got = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert got.items() >= {"MODEL_ID": "Qwen/Qwen3-8B", "NUM_SHARD": "4", "MAX_TOTAL_TOKENS": "8192"}.items()
    assert set(given) <= KNOWN | set(re.findall(r"\b(?:HF|SM)_[A-Z_]+", ENTRY_POINT.read_text()))


def test_sagemakers_requests_belong_together(sagemaker: dict[str, Any]) -> None:
    arguments = sagemaker["parser"]().parse_args([*CREATE, "--instance", "ml.m7i.4xlarge", "--gpus", "0"])
    made = sagemaker["model"](arguments)
    [variant] = sagemaker["endpoint_config"](arguments)["ProductionVariants"]
    assert made["ModelName"] == variant["ModelName"] == "chat"
    assert "SM_NUM_GPUS" not in made["PrimaryContainer"]["Environment"]


def test_a_setting_without_a_value_is_refused(sagemaker: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sagemaker["parser"]().parse_args([*CREATE, "--set", "MAX_TOTAL_TOKENS"])
    assert "a setting has the form NAME=VALUE" in capsys.readouterr().err
