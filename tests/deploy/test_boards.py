"""Boards and rules ask only for series, labels and values that the server exposes; rules fire when they shall."""

import json
import os
import re
import runpy
from collections import defaultdict

import pytest
import yaml

from penstock.router.accounts.use import Account, Use
from penstock.router.metrics.metrics import Metrics
from penstock.router.metrics.processes import Processes
from penstock.router.scheduling.occupancy import Occupancy
from tests.deploy.commands import run
from tests.fakes import LIMITS
from tests.paths import ROOT

FOLDER = ROOT / "deploy/compose"
BOARD = json.loads((FOLDER / "grafana/boards/penstock.json").read_text())
RULES = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"][0]["rules"]
GIVEN_BY_PROMETHEUS = {"container", "instance", "job"}
WORDS = {"by", "and", "or", "on", "unless", "without"}

Labels = dict[str, set[str]]


def exposed() -> dict[str, Labels]:
    """Returns the values of each label of each series, of a server that has a group and has answered one request."""
    metrics = Metrics(LIMITS, processes=Processes(os.getpid()))
    metrics.answered("/generate", 200)
    metrics.groups.states({"serving": 1})
    metrics.occupancy("a", Occupancy())
    metrics.checks.knows(["a"])
    metrics.accounts.used(Account("2026-11-29", "a", "m", "USD"), Use(1, output_tokens=1, nanos=1))
    metrics.accounts.refused("a")
    series: dict[str, Labels] = {"up": {}}
    for line in metrics.exposition().decode().splitlines():
        if not line.startswith("#"):
            name = re.match(r"\w+", line)[0]
            labels = series.setdefault(name, defaultdict(set))
            for label, value in re.findall(r'(\w+)="([^"]*)"', line):
                labels[label].add(value)
    return series


SERIES = exposed()


def expressions() -> list[str]:
    targets = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", [])]
    variables = [variable["query"].removeprefix("label_values(").rpartition(",")[0]
                 for variable in BOARD["templating"]["list"]]
    return targets + variables + [rule["expr"] for rule in RULES]


def unknown(expression: str) -> set[str]:
    """Returns the series, labels and labels' values of an expression that no server exposes."""
    missing = set()
    for name, labels in re.findall(r"(\w+)\{([^}]*)\}", expression):
        for label, sign, values in re.findall(r'(\w+)(=~|=)"([^"]*)"', labels):
            if label not in GIVEN_BY_PROMETHEUS:
                wanted = set(values.split("|")) if sign == "=~" else {values}
                missing |= {f"{name}.{label}={value}" for value in wanted - SERIES.get(name, {}).get(label, set())}
    plain = re.sub(r"\{[^}]*\}|\[[^]]*\]", "", expression)
    used = set(re.findall(r"\b([a-z]\w*)\b(?! *\()", re.sub(r"\b(by|on|without) *\([^)]*\)", "", plain))) - WORDS
    grouped = {label for labels in re.findall(r"\b(?:by|without) *\(([^)]*)\)", plain) for label in labels.split(", ")}
    known = GIVEN_BY_PROMETHEUS.union(*(SERIES.get(name, {}) for name in used))
    return missing | (used - set(SERIES)) | (grouped - known)


def test_the_board_is_the_one_that_its_script_writes():
    made = runpy.run_path(str(FOLDER / "grafana/board.py"))
    assert (FOLDER / "grafana/boards/penstock.json").read_text() == made["text"]()


@pytest.mark.parametrize("expression", expressions())
def test_what_an_expression_asks_for_is_exposed(expression):
    assert unknown(expression) == set()


@pytest.mark.parametrize(("expression", "what"), [
    ('sum by (le) (rate(tgi_no_such_bucket{container="a"}[5m]))', {"tgi_no_such_bucket", "le"}),
    ('rate(tgi_request_failure{err="no"}[5m])', {"tgi_request_failure.err=no"}),
    ("sum by (status) (rate(tgi_request_count[5m])) > 0", {"status"}),
])
def test_what_no_server_exposes_is_found(expression, what):
    assert unknown(expression) == what


def test_the_board_shows_every_series_of_ours():
    shown = " ".join(expressions())
    ours = {re.sub("_(bucket|sum|count)$", "", name) for name in SERIES
            if name.startswith("penstock_") and f"{name}_total" not in SERIES}
    assert {name for name in ours if name not in shown} == set()


PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def test_no_panel_is_there_twice():
    shown = [target["expr"] for panel in PANELS for target in panel["targets"]]
    assert len(shown) == len(set(shown))
    titles = [panel["title"] for panel in PANELS]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_each_panel_says_what_it_shows(panel):
    assert re.fullmatch(r"[A-Za-z1-9].*\.", panel["description"])


@pytest.mark.parametrize(("title", "name"), [
    ("Time to first token (TTFT)", "penstock_time_to_first_token_seconds_bucket"),
    ("Inter-token latency (ITL)", "penstock_inter_token_latency_seconds_bucket")])
def test_latencies_have_the_names_that_people_know(title, name):
    [panel] = [panel for panel in PANELS if panel["title"] == title]
    assert all(name in target["expr"] for target in panel["targets"])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_alert_has_a_page(rule):
    """The page has a heading of the alert's name, and words below it."""
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = dict(re.findall(r"^### (\w+)\n+([A-Z].*)", (ROOT / page).read_text(), re.MULTILINE))
    assert anchor in {name.lower() for name in headings}
    assert rule["alert"] in headings


def test_rules_are_valid():
    run("promtool", "check", "rules", "rules.yml", folder=FOLDER, package="prometheus")


def test_the_configuration_of_prometheus_is_valid():
    run("promtool", "check", "config", "prometheus.yml", folder=FOLDER, package="prometheus")


def test_rules_fire_when_they_shall():
    cases = yaml.safe_load((ROOT / "tests/deploy/rules.yml").read_text())
    tried = {alert["alertname"] for case in cases["tests"] for alert in case["alert_rule_test"] if alert["exp_alerts"]}
    assert tried == {rule["alert"] for rule in RULES}
    run("promtool", "test", "rules", "rules.yml", folder=ROOT / "tests/deploy", package="prometheus")
