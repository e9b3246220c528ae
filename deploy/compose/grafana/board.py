"""Writes boards/penstock.json, the Grafana board of all series that the server exposes: `python board.py`.

Every expression looks at the servers that the variables `container` and `instance` choose.
"""

import json
from pathlib import Path
from typing import Any

BOARD = Path(__file__).parent / "boards/penstock.json"
SOURCE = {"type": "prometheus", "uid": "prometheus"}
CHOICE = 'container=~"$container",instance=~"$instance"'
USED = 'state="used"'
GROUP = "{{group}}"
WIDTH, HEIGHT, PER_ROW = 8, 8, 3

Targets = list[tuple[str, str]]
"""Expressions, each with its legend."""


def series(name: str, labels: str = "") -> str:
    """Returns the series of the servers that are looked at."""
    return f"{name}{{{labels}{',' if labels else ''}{CHOICE}}}"


def total(name: str, labels: str = "") -> str:
    return f"sum({series(name, labels)})"


def rate(name: str, labels: str = "", by: str = "") -> str:
    """Returns how much a counter grows a second, of all servers together or by a label."""
    return f"sum{f' by ({by})' if by else ''} (rate({series(name, labels)}[$__rate_interval]))"


def by_server(expression: str) -> str:
    return f"sum by (instance) ({expression})"


def growth(name: str) -> str:
    return by_server(f"increase({series(name)}[$__rate_interval])")


def quantiles(name: str, labels: str = "") -> Targets:
    return [(f"histogram_quantile({quantile}, {rate(f'{name}_bucket', labels, by='le')})", f"p{quantile * 100:g}")
            for quantile in (0.5, 0.9, 0.99)]


def share(part: str, rest: str) -> str:
    return f"{part} / ({part} + {rest})"


def steps(method: str) -> Targets:
    return quantiles("tgi_batch_inference_duration", f'method="{method}"')


ROWS: dict[str, list[tuple[str, str, Targets]]] = {
    "Requests": [
        ("Requests", "reqps", [(rate("tgi_request_count"), "asked"), (rate("tgi_request_success"), "answered")]),
        ("Answers by route and status", "reqps", [
            (rate("penstock_requests_total", by="route, status"), "{{route}} {{status}}")]),
        ("Failures by error", "reqps", [(rate("tgi_request_failure", by="err"), "{{err}}")]),
        ("Tokens", "short", [(rate("penstock_prompt_tokens_total"), "of prompts, computed, per second"),
                             (rate("penstock_generated_tokens_total"), "generated per second")]),
        ("Tokens guessed and verified", "short", [(rate("penstock_drafted_tokens_total"), "per second"),
                                                  (rate("penstock_accepted_tokens_total"), "per second, right")]),
        ("Tokens of a prompt", "short", quantiles("tgi_request_input_length")),
        ("Tokens of an answer", "short", quantiles("tgi_request_generated_tokens")),
    ],
    "Latency": [
        ("Time to the first token", "s", quantiles("penstock_time_to_first_token_seconds")),
        ("Time between tokens", "s", quantiles("penstock_inter_token_latency_seconds")),
        ("Time in the queue", "s", quantiles("tgi_request_queue_duration")),
        ("Checking and tokenising", "s", quantiles("tgi_request_validation_duration")),
        ("From the first step to the last token", "s", quantiles("tgi_request_inference_duration")),
        ("From the request to the end of its answer", "s", quantiles("tgi_request_duration")),
    ],
    "Queue and KV memory": [
        ("Requests", "short", [(total("tgi_queue_size"), "waiting"), (total("tgi_batch_current_size"), "running")]),
        ("Requests waiting, by server", "short", [(series("tgi_queue_size"), "{{instance}}")]),
        ("Prompt tokens found in the prefix cache", "percentunit", [
            (share(rate("penstock_prefix_hit_tokens_total"), rate("penstock_prompt_tokens_total")), "of all")]),
        ("KV blocks", "short", [(f"sum by (state) ({series('penstock_kv_blocks')})", "{{state}}")]),
        ("KV blocks in use, by server", "percentunit", [
            (f"{by_server(series('penstock_kv_blocks', USED))} / {by_server(series('penstock_kv_blocks'))}",
             "{{instance}}")]),
        ("Places of held blocks without a token", "percentunit", [
            (f"{total('penstock_kv_wasted_slots')} / {total('tgi_batch_current_max_tokens')}", "wasted")]),
    ],
    "Groups": [
        ("Groups, by what they do", "short", [(f"sum by (state) ({series('penstock_groups')})", "{{state}}")]),
        ("Requests waiting, by group", "short", [(f"sum by (group) ({series('penstock_group_queue_size')})", GROUP)]),
        ("Requests running, by group", "short", [(f"sum by (group) ({series('penstock_group_batch_size')})", GROUP)]),
        ("KV blocks in use, by group", "percentunit", [
            (f"sum by (group) ({series('penstock_group_kv_blocks', USED)})"
             f" / sum by (group) ({series('penstock_group_kv_blocks')})", GROUP)]),
        ("KV memory", "short", [(total("penstock_kv_num_blocks"), "blocks"),
                                (f"max({series('penstock_kv_block_size')})", "tokens of a block")]),
        ("KV memory in use, by server", "percentunit", [(series("penstock_kv_usage"), "{{instance}}")]),
        ("Why a group was chosen", "reqps", [(rate("penstock_choice_total", by="reason"), "{{reason}}")]),
        ("Requests that went on in another group", "short", [
            (f"sum by (cause) (increase({series('penstock_moved_requests_total')}[$__rate_interval]))", "{{cause}}"),
            (f"sum (increase({series('penstock_moves_to_other_numerics_total')}[$__rate_interval]))",
             "to other numerics")]),
        ("Pause of an answer that went on in another group", "s", quantiles("penstock_move_pause_seconds")),
        ("Answers that went on after their connection broke", "short", [
            (growth("penstock_resumed_answers_total"), "{{instance}}")]),
    ],
    "Steps": [
        ("Steps with prompts", "s", steps("prefill")),
        ("Steps without prompts", "s", steps("decode")),
        ("Steps per second", "short", [(rate("tgi_batch_inference_success", by="method"), "{{method}}")]),
        ("The model's part of a step with prompts", "s", quantiles("tgi_batch_forward_duration", 'method="prefill"')),
        ("The model's part of a step without", "s", quantiles("tgi_batch_forward_duration", 'method="decode"')),
        ("Tokens that a step may compute", "short", [(by_server(series("penstock_step_tokens")), "{{instance}}")]),
        ("Requests that begin with one step", "short", quantiles("tgi_batch_next_size")),
    ],
    "Adapters": [
        ("Adapters, by where they are", "short", [
            (f"sum by (state) ({series('penstock_adapters')})", "{{state}}")]),
        ("Loading an adapter", "s", quantiles("penstock_adapter_load_seconds")),
        ("Adapters loaded and unloaded", "short", [(rate("penstock_adapter_loads_total"), "loaded per second"),
                                                   (rate("penstock_adapter_evictions_total"), "unloaded per second")]),
    ],
    "Faults": [
        ("Servers that answer Prometheus", "short", [(series("up"), "{{container}} {{instance}}")]),
        ("Groups lost", "short", [(growth("penstock_group_restarts_total"), "{{instance}}")]),
        ("Requests that went on after a loss", "short", [(growth("penstock_replays_total"), "{{instance}}")]),
        ("Steps lost", "short", [(rate("tgi_batch_inference_failure", by="method"), "{{method}} per second")]),
        ("Requests that let go of KV memory", "short", [(growth("penstock_preemptions_total"), "{{instance}}")]),
    ],
}


def panel(title: str, unit: str, targets: Targets, left: int, top: int) -> dict[str, Any]:
    return {
        "type": "timeseries", "title": title, "datasource": SOURCE,
        "gridPos": {"x": left, "y": top, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [{"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
                    for index, (expression, legend) in enumerate(targets)],
    }


def panels() -> list[dict[str, Any]]:
    """Returns the panels of ROWS, three beside one another, under the titles of their rows."""
    made: list[dict[str, Any]] = []
    top = 0
    for row, content in ROWS.items():
        made.append({"type": "row", "title": row, "collapsed": False, "panels": [],
                     "gridPos": {"x": 0, "y": top, "w": WIDTH * PER_ROW, "h": 1}})
        top += 1
        for first in range(0, len(content), PER_ROW):
            made += [panel(*each, left=WIDTH * place, top=top)
                     for place, each in enumerate(content[first:first + PER_ROW])]
            top += HEIGHT
    return [{"id": number, **each} for number, each in enumerate(made, start=1)]


def variable(name: str, query: str) -> dict[str, Any]:
    return {"name": name, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2, "multi": True,
            "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}


def text() -> str:
    """Returns the board as Grafana reads it."""
    board = {
        "uid": "penstock", "title": "Penstock", "schemaVersion": 39, "editable": True,
        "time": {"from": "now-30m", "to": "now"}, "refresh": "5s",
        "templating": {"list": [
            variable("container", "label_values(tgi_request_count, container)"),
            variable("instance", 'label_values(tgi_request_count{container=~"$container"}, instance)')]},
        "panels": panels(),
    }
    return json.dumps(board, indent=1) + "\n"


if __name__ == "__main__":
    BOARD.write_text(text())
