"""Writes boards/penstock.json, the Grafana board of all series that the server exposes: `python board.py`.

Every expression looks at the servers that the variables `container` and `instance` choose.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

BOARD = Path(__file__).parent / "boards/penstock.json"
SOURCE = {"type": "prometheus", "uid": "prometheus"}
CHOICE = 'container=~"$container",instance=~"$instance"'
USED = 'state="used"'
GROUP, PROCESS = "{{group}}", "{{instance}} {{process}}"
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


class Panel(NamedTuple):
    """What a panel shows. `meaning` says what that is, and what to think of it."""

    title: str
    meaning: str
    unit: str
    targets: Targets


ROWS: dict[str, list[Panel]] = {
    "Requests": [
        Panel("Requests asked and answered", "Requests to generate that came, and those that were answered to the end. "
              "What is between the lines still runs, was refused, has failed or was left.", "reqps", [
                  (rate("tgi_request_count"), "asked"), (rate("tgi_request_success"), "answered")]),
        Panel("Answers by route and status", "All requests by route and HTTP status, 499 where the client left.",
              "reqps", [(rate("penstock_requests_total", by="route, status"), "{{route}} {{status}}")]),
        Panel("Failures by error", "Requests that were refused (overloaded, validation, template), failed (generation, "
              "incomplete) or were left by their client (dropped).", "reqps", [
                  (rate("tgi_request_failure", by="err"), "{{err}}")]),
        Panel("Tokens", "Tokens of prompts that were computed, without those found in the prefix cache, and tokens "
              "generated.", "short", [(rate("penstock_prompt_tokens_total"), "of prompts, computed, per second"),
                                      (rate("penstock_generated_tokens_total"), "generated per second")]),
        Panel("Tokens guessed and verified", "Tokens that speculation guessed, and those of them that were right. Few "
              "right ones of many cost time.", "short", [
                  (rate("penstock_drafted_tokens_total"), "per second"),
                  (rate("penstock_accepted_tokens_total"), "per second, right")]),
        Panel("Tokens of a prompt", "How long prompts are.", "short", quantiles("tgi_request_input_length")),
        Panel("Tokens of an answer", "How long answers are that came to their end.", "short",
              quantiles("tgi_request_generated_tokens")),
    ],
    "Latency": [
        Panel("Time to first token (TTFT)", "From the request to the first token of its answer: checking, waiting and "
              "computing the prompt.", "s", quantiles("penstock_time_to_first_token_seconds")),
        Panel("Inter-token latency (ITL)", "From a token of an answer to the next one, as clients of streams see it.",
              "s", quantiles("penstock_inter_token_latency_seconds")),
        Panel("Time per output token (TPOT)", "From the first step of an answer to its last token, for each of its "
              "tokens; the prompt's share is in it.", "s", quantiles("tgi_request_mean_time_per_token_duration")),
        Panel("End-to-end latency", "From the request to the end of its answer.", "s",
              quantiles("tgi_request_duration")),
        Panel("Time in the queue", "From the submission of a request to its first step.", "s",
              quantiles("tgi_request_queue_duration")),
        Panel("Inference time", "From the first step of an answer to its last token.", "s",
              quantiles("tgi_request_inference_duration")),
        Panel("Checking and tokenising", "What a request takes before it is submitted.", "s",
              quantiles("tgi_request_validation_duration")),
        Panel("Chat templates", "Writing a chat's prompt by its template. Much more than some milliseconds means long "
              "chats, or too few processors.", "s", quantiles("penstock_chat_template_seconds")),
        Panel("Tokenising texts", "Finding the tokens of a text that a vector or scores are made of.", "s",
              quantiles("penstock_tokenization_seconds")),
    ],
    "Queue and KV memory": [
        Panel("Tokens of a step", "How many tokens of prompts and texts a step computes that has any.", "short",
              quantiles("penstock_batch_next_tokens")),
        Panel("Requests that wait and run", "Of all servers together. A queue that stays while few run has its reason "
              "beside.", "short", [
                  (total("tgi_queue_size"), "waiting"), (total("tgi_batch_current_size"), "running")]),
        Panel("Why requests wait", "slots: as many run as may; budget: the step is full; memory: no KV memory is left; "
              "prefix: another computes the same beginning; adapter: it is not loaded; beam: others of its search are "
              "not as far; suspect: one that may have killed the group runs alone; others: a line of a batch, which "
              "comes after others; group: the group is away; new: came just now.", "short", [
                  (f"sum by (reason) ({series('penstock_waiting_requests')})", "{{reason}}")]),
        Panel("Requests that wait, by server", "One that stands out among equals gets more than its share.", "short", [
            (series("tgi_queue_size"), "{{instance}}")]),
        Panel("Prompt tokens found in the prefix cache", "The share of prompts' tokens that needed not be computed.",
              "percentunit", [(share(rate("penstock_prefix_hit_tokens_total"), rate("penstock_prompt_tokens_total")),
                               "of all")]),
        Panel("KV blocks", "Blocks that requests hold, and all others, which the prefix cache may use.", "short", [
            (f"sum by (state) ({series('penstock_kv_blocks')})", "{{state}}")]),
        Panel("KV memory held, by server", "The share that requests hold. At 1 requests wait, or let go of what they "
              "have.", "percentunit", [(series("penstock_kv_usage"), "{{instance}}")]),
        Panel("Size of the KV memory", "Blocks of all groups, and the tokens of a block.", "short", [
            (total("penstock_kv_num_blocks"), "blocks"),
            (f"max({series('penstock_kv_block_size')})", "tokens of a block")]),
        Panel("Places of held blocks without a token", "The share of held memory that waits for tokens still to come.",
              "percentunit", [
                  (f"{total('penstock_kv_wasted_slots')} / {total('tgi_batch_current_max_tokens')}", "wasted")]),
    ],
    "Groups": [
        Panel("Groups, by what they do", "serving, stuck in a step, draining, away (lost, or loading), or refused, for "
              "they do not fit the others.", "short", [(f"sum by (state) ({series('penstock_groups')})", "{{state}}")]),
        Panel("Requests that wait, by group", "Of servers with several groups.", "short", [
            (f"sum by (group) ({series('penstock_group_queue_size')})", GROUP)]),
        Panel("Requests that run, by group", "Of servers with several groups.", "short", [
            (f"sum by (group) ({series('penstock_group_batch_size')})", GROUP)]),
        Panel("KV memory held, by group", "The share of each group's blocks that requests hold.", "percentunit", [
            (f"sum by (group) ({series('penstock_group_kv_blocks', USED)})"
             f" / sum by (group) ({series('penstock_group_kv_blocks')})", GROUP)]),
        Panel("Why a group was chosen", "prefix: it has the prompt's beginning; load: it has the least to do; only: no "
              "other could be.", "reqps", [(rate("penstock_choice_total", by="reason"), "{{reason}}")]),
        Panel("Requests that went on in another group", "Since theirs was lost, stuck or drained; those that went "
              "where other bits are computed, too.", "short", [
                  (f"sum by (cause) (increase({series('penstock_moved_requests_total')}[$__rate_interval]))",
                   "{{cause}}"),
                  (f"sum (increase({series('penstock_moves_to_other_numerics_total')}[$__rate_interval]))",
                   "to other numerics")]),
        Panel("Pause of an answer that moved", "From the loss of its group to its next token, from another.", "s",
              quantiles("penstock_move_pause_seconds")),
        Panel("Answers that were resumed", "Answers that went on after their connection broke.", "short", [
            (growth("penstock_resumed_answers_total"), "{{instance}}")]),
    ],
    "Steps": [
        Panel("Steps with prompts", "The shards' work on a step that computes prompts.", "s", steps("prefill")),
        Panel("Steps without prompts", "The shards' work on a step that only generates.", "s", steps("decode")),
        Panel("Steps per second", "With prompts (prefill) and without (decode).", "short", [
            (rate("tgi_batch_inference_success", by="method"), "{{method}}")]),
        Panel("The model's part of a step with prompts", "Without sampling and text.", "s",
              quantiles("tgi_batch_forward_duration", 'method="prefill"')),
        Panel("The model's part of a step without", "Without sampling and text.", "s",
              quantiles("tgi_batch_forward_duration", 'method="decode"')),
        Panel("Tokens that a step may compute", "Follows how long steps take, so that one takes about 250 ms.", "short",
              [(by_server(series("penstock_step_tokens")), "{{instance}}")]),
        Panel("Power while steps run", "Of processors or GPUs, if the machine tells it, over all time.", "watt",
              [(rate("penstock_energy_joules_total"), "watts")]),
        Panel("Requests that begin with one step", "How many come together.", "short",
              quantiles("tgi_batch_next_size")),
    ],
    "Adapters": [
        Panel("Adapters, by where they are", "Known by name, and loading, loaded or unloading on the shards.", "short",
              [(f"sum by (state) ({series('penstock_adapters')})", "{{state}}")]),
        Panel("Loading an adapter", "On all shards.", "s", quantiles("penstock_adapter_load_seconds")),
        Panel("Adapters loaded and unloaded", "Many of both mean that --max-adapter-memory is too small for those in "
              "use.", "short", [(rate("penstock_adapter_loads_total"), "loaded per second"),
                                (rate("penstock_adapter_evictions_total"), "unloaded per second")]),
    ],
    "Batches": [
        Panel("Batches, by their state", "Of the store that the servers share, of which each tells all. Of servers "
              "with stores of their own, choose one.", "short", [
                  (f"max by (status) ({series('penstock_batches')})", "{{status}}")]),
        Panel("Lines answered", "Lines of batches, by whether their answer is an error.", "reqps", [
            (rate("penstock_batch_lines_total", by="outcome"), "{{outcome}}")]),
        Panel("Lines that wait and run", "Lines of batches, and each of their answers. They count among the requests "
              "that run, but not among those that wait.", "short", [
                  (f"sum by (state) ({series('penstock_background_sequences')})", "{{state}}")]),
        Panel("Failures of the store", "Reads and writes that the database refused: it was away, or is full.", "short",
              [(growth("penstock_store_failures_total"), "{{instance}}")]),
        Panel("Kept answers", "Answers by whether they were kept: a hit, a miss, shared with an equal request, or "
              "skipped.", "reqps", [(rate("penstock_response_cache_requests_total", by="outcome"), "{{outcome}}")]),
        Panel("Bytes of kept answers", "Those in memory or in a database, and those that were kept anew each second.",
              "bytes", [(by_server(series("penstock_response_cache_bytes")), "{{instance}}"),
                        (rate("penstock_response_cache_kept_bytes_total", by="instance"), "a second, {{instance}}")]),
        Panel("Records of requests", "Those that were written, and those that were dropped, since more came than could "
              "be written.", "reqps", [
                  (rate("penstock_request_log_records_total", by="outcome"), "{{outcome}}")]),
        Panel("Failures of the log of requests", "Writes that have failed, which are tried again: the place is away, "
              "or is full.", "short", [(growth("penstock_request_log_failures_total"), "{{instance}}")]),
        Panel("Requests of keys", "By the name of the key: those that were answered, and those that were refused, for "
              "its budget is spent.", "reqps", [
                  (rate("penstock_usage_requests_total", by="key"), "{{key}}"),
                  (rate("penstock_budget_refusals_total", by="key"), "refused, {{key}}")]),
        Panel("Use of keys", "Tokens by key and kind, and the share of the time of the model's steps.", "short", [
            (rate("penstock_usage_tokens_total", by="key, kind"), "{{kind}}, {{key}}"),
            (rate("penstock_usage_step_seconds_total", by="key"), "steps, {{key}}")]),
        Panel("Cost", "The cost of requests an hour, by key and currency.", "short", [
            (f"3600 * {rate('penstock_usage_cost_total', by='key, currency')}", "{{currency}}, {{key}}")]),
        Panel("Failures of accounts", "Writes of use that have failed, which are tried again: the database is away, or "
              "is full.", "short", [(growth("penstock_usage_failures_total"), "{{instance}}")]),
        Panel("Answers that were checked", "Those that have passed, have failed a check or could not be checked, and "
              "those that were made anew.", "reqps", [
                  (rate("penstock_checked_answers_total", by="outcome"), "{{outcome}}"),
                  (rate("penstock_output_retries_total"), "made anew")]),
        Panel("Findings", "Answers that have failed a check, by its name.", "reqps", [
            (rate("penstock_output_findings_total", by="check"), "{{check}}")]),
        Panel("Deadlines", "Answers whose deadline was promised or refused, and of the promised ones those that came "
              "in time or late.", "reqps", [(rate("penstock_deadlines_total", by="outcome"), "{{outcome}}")]),
        Panel("Left before deadlines", "Time from the end of an answer to its deadline, where that was kept.", "s",
              quantiles("penstock_deadline_early_seconds")),
        Panel("Beyond deadlines", "Time from a deadline that was missed to the end of the answer.", "s",
              quantiles("penstock_deadline_late_seconds")),
        Panel("Failures of the cache of answers", "Reads and writes that failed or came too late, and answers "
              "that were too large, or too many at once.", "short", [
                  (growth("penstock_response_cache_failures_total"), "failures, {{instance}}"),
                  (growth("penstock_response_cache_dropped_total"), "dropped, {{instance}}")]),
    ],
    "Processes": [
        Panel("Processors in use", "Of launcher, router and shards of the server's own machine, in whole processors. A "
              "router near 1 is the limit: --api-workers.", "short", [
                  (rate("process_cpu_seconds_total", by="instance, process"), PROCESS)]),
        Panel("Memory of processes", "Resident memory; shards share the KV memory on the host, which each counts.",
              "bytes", [(f"sum by (instance, process) ({series('process_resident_memory_bytes')})", PROCESS)]),
        Panel("Versions", "Servers by the version that they run.", "short", [
            (f"count by (version) ({series('penstock_build_info')})", "{{version}}")]),
    ],
    "Faults": [
        Panel("Servers that answer Prometheus", "1 if the last scrape came back.", "short", [
            (series("up"), "{{container}} {{instance}}")]),
        Panel("Groups lost", "Times that a group was lost, and is started again.", "short", [
            (growth("penstock_group_restarts_total"), "{{instance}}")]),
        Panel("Requests that went on after a loss", "None of these was answered with an error.", "short", [
            (growth("penstock_replays_total"), "{{instance}}")]),
        Panel("Steps lost", "Steps that were in flight when their group was lost.", "short", [
            (rate("tgi_batch_inference_failure", by="method"), "{{method}} per second")]),
        Panel("Requests that let go of KV memory", "Preempted for older ones, and computed again later. Many mean that "
              "there is too little KV memory for so many at once.", "short", [
                  (growth("penstock_preemptions_total"), "{{instance}}")]),
    ],
}


def drawn(panel: Panel, left: int, top: int) -> dict[str, Any]:
    return {
        "type": "timeseries", "title": panel.title, "description": panel.meaning, "datasource": SOURCE,
        "gridPos": {"x": left, "y": top, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [{"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
                    for index, (expression, legend) in enumerate(panel.targets)],
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
            made += [drawn(each, left=WIDTH * place, top=top)
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
