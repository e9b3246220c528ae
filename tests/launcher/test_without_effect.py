"""Every option of every command, and under which condition it acts: beside others that leave it nothing to do it is
refused, or a line at the start says so. A new option has to be put in here."""

from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from penstock.launcher import group_launch, hub
from penstock.launcher import launch as launcher
from penstock.launcher.cli import main
from penstock.launcher.config import LauncherConfig
from penstock.launcher.option_types import Noted, Unsupported
from penstock.launcher.without_effect import TABLE
from penstock.offline import batch_run
from penstock.offline.batch_run import Batch
from penstock.offline.run_batch import OF_OTHER_ROUTES
from penstock.offline.run_batch import SHARED as SHARED_WITH_BATCHES
from penstock.router import logs
from tests.paths import DEMO_MODEL

MODEL = str(DEMO_MODEL)
ALWAYS = "always"
"""Of an option that acts beside all others, or with each value that it takes."""
BY_SHARD = "always, or the shard says otherwise"
"""Of an option whose effect the device decides, or the checkpoint: tests/shard/startup/test_load.py and
tests/shard/models/test_quantization.py have what the shard says."""
BY_ROUTER = "always, or the router says otherwise"
"""Of an option of texts that vectors and scores are made of: tests/router/test_parts.py has what the router says."""
TOLD = "--{} has no effect: "


class Idle:
    """The arguments with which an option has nothing to do, and the end of what is said then: a refusal, or a line."""

    def __init__(self, arguments: str, said: str) -> None:
        self.arguments = arguments.format(model=MODEL).split()
        self.said = said


Acts = str | Idle
FILES = "--shard-tls-ca /a --shard-tls-cert /b --shard-tls-key /c"
TLS = {"shard_tls_ca": Idle("--shard-tls-ca /a", "must be given together"),
       "shard_tls_cert": Idle("--shard-tls-cert /a", "must be given together"),
       "shard_tls_key": Idle("--shard-tls-key /a", "must be given together"),
       "shard_tls_name": Idle("--shard-tls-name x", "`shard_tls_name` needs `shard_tls_ca`, ")}
OF_COMMANDS_TLS = {**TLS, **{name: Idle(f"--{name.replace('_', '-')} /a", "are needed together")
                             for name in ("shard_tls_ca", "shard_tls_cert", "shard_tls_key")}}
OF_MODEL: dict[str, Acts] = {
    "model_id": ALWAYS, "dtype": ALWAYS, "quantize": BY_SHARD, "activations": BY_SHARD, "model_impl": ALWAYS,
    "rope_scaling": BY_SHARD, "rope_factor": BY_SHARD, "watermark_gamma": ALWAYS, "watermark_delta": ALWAYS,
    "kv_memory": ALWAYS, "kv_cache_dtype": BY_SHARD, "block_size": ALWAYS, "max_batch_prefill_tokens": ALWAYS,
    "speculate": ALWAYS, "graceful_termination_timeout": ALWAYS, "otlp_endpoint": ALWAYS,
    "num_shard": ALWAYS, "pipeline_parallel_size": ALWAYS, "device": ALWAYS, "threads": ALWAYS, "step_timeout": ALWAYS,
    "startup_timeout": ALWAYS, "json_output": ALWAYS, "env": ALWAYS,
    "task": BY_SHARD, "pooling": BY_SHARD,
    "max_batch_size": Idle("--max-batch-size 64 --max-batch-prefill-tokens 64", TOLD.format("max-batch-size") +
                           "a step of --max-batch-prefill-tokens 64 has room for fewer sequences"),
    "revision": Idle("--revision x", TOLD.format("revision") + f"{MODEL} is on this machine, and read as it is"),
    "huggingface_hub_cache": Idle("--huggingface-hub-cache /tmp", TOLD.format("huggingface-hub-cache") +
                                  "nothing is downloaded, for all models are on this machine"),
    "draft_model_id": Idle("--draft-model-id x", "`draft_model_id` needs a `speculate` above 0"),
    "otlp_service_name": Idle("--otlp-service-name x", TOLD.format("otlp-service-name") +
                              "nothing is traced without --otlp-endpoint"),
    "sharded": Idle("--sharded false --num-shard 2", "--sharded has no effect: false changes nothing beside "
                    "--num-shard 2"),
    "deterministic": Idle("--deterministic --device cpu", TOLD.format("deterministic") + "no answer of a processor"),
    "cuda_graphs": Idle("--cuda-graphs 1,2 --device cpu", TOLD.format("cuda-graphs") + "nothing is captured on a"),
    "cuda_memory_fraction": Idle("--cuda-memory-fraction 0.5 --device cpu", TOLD.format("cuda-memory-fraction") +
                                 "on a processor --kv-memory says how much"),
    "master_addr": Idle("--master-addr localhost", TOLD.format("master-addr") + "without --master-port the shards"),
    "master_port": Idle("--master-port 29500", TOLD.format("master-port") + "a single shard meets no others"),
}
SERVE: dict[str, Acts] = OF_MODEL | TLS | dict.fromkeys((
    "lora_adapters", "tokenizer_config_path", "max_batch_total_tokens", "pipeline_depth", "max_input_tokens",
    "max_total_tokens", "max_concurrent_requests", "max_best_of", "max_stop_sequences", "max_top_n_tokens",
    "max_client_batch_size", "payload_limit", "enable_prefill_logprobs", "disable_grammar_support", "hostname", "port",
    "grpc_port", "validation_workers", "api_workers", "strict_streaming_errors", "tgi_openai_routes", "api_key",
    "vllm_metrics", "triton_metrics", "api_key_file", "metrics_key", "max_shard_downtime", "poison_memory",
    "no_request_logs",
    "shard_uds_path", "groups", "allow_priorities", "trust_request_chat_template", "tool_call_parser",
    "reasoning_parser", "receipt_key", "output_checks", "explained_requests"), ALWAYS) | {
    "models": Idle("--models /a", "`model_id` and `models` can't be given together"),
    "model_repository": Idle("--model-repository /a", "`model_id` and `model_repository` can't be given together"),
    **{name: Idle(f"--{name.replace('_', '-')} 5", TOLD.format(name.replace("_", "-")) + "without --models or")
       for name in ("max_model_memory", "max_load_wait", "model_keep_alive", "keep_weights")},
    "auto_truncate": BY_ROUTER, "default_prompt": BY_ROUTER,
    "default_prompt_name": Idle("--default-prompt-name a --default-prompt b", "`default_prompt_name` can't be given"),
    "max_batch_tokens": Idle("--max-batch-tokens 5 --max-batch-prefill-tokens 5", "can't be given together"),
    "max_batch_requests": Idle("--max-batch-requests 5 --max-batch-size 5", "can't be given together"),
    "data_dir": Idle("--data-dir /a --database-url postgresql://b", "`data_dir` and `database_url` can't be given"),
    "database_url": Idle("--database-url postgresql://b --data-dir /a", "`data_dir` and `database_url` can't be"),
    "response_cache": Idle("--response-cache sqlite", "`response_cache` sqlite needs a `data_dir`"),
    "response_cache_size": Idle("--response-cache-size 1GB", TOLD.format("response-cache-size") +
                                "no answers are kept without --response-cache"),
    "response_cache_age": Idle("--response-cache-age 60", TOLD.format("response-cache-age") +
                               "no answers are kept without --response-cache"),
    "response_cache_shared": Idle("--response-cache-shared", TOLD.format("response-cache-shared") +
                                  "no answers are kept without --response-cache"),
    "request_log": Idle("--request-log sqlite", "`request_log` sqlite needs a `data_dir`"),
    **{f"request_log_{name}": Idle(f"--request-log-{name} {value}", TOLD.format(f"request-log-{name}") +
                                   "no records are written without --request-log")
       for name, value in (("content", "none"), ("redact", "x"), ("sample", "0.5"), ("rotate", "1MB"))},
    "prices": Idle("--prices /a", "`prices` needs a `data_dir` or a `database_url`, where totals are kept"),
    "max_input_length": Idle("--max-input-length 5 --max-input-tokens 5", "Please define only `max_input_tokens`"),
    "max_adapter_memory": Idle("--max-adapter-memory 1GiB", TOLD.format("max-adapter-memory") +
                               "there are no adapters without --lora-adapters or --allow-runtime-adapters"),
    "allow_runtime_adapters": Idle("--allow-runtime-adapters", "`allow_runtime_adapters` needs an `api_key`"),
    "cors_allow_origin": Idle("--cors-allow-origin * --cors-allow-origin http://a", TOLD.format("cors-allow-origin") +
                              "* allows any origin"),
    "ssl_certfile": Idle("--ssl-certfile /a", "`ssl_certfile` and `ssl_keyfile` must be given together"),
    "ssl_keyfile": Idle("--ssl-keyfile /a", "`ssl_certfile` and `ssl_keyfile` must be given together"),
}
GROUP: dict[str, Acts] = OF_MODEL | TLS | {
    "listen": ALWAYS, "group_name": ALWAYS, "nnodes": ALWAYS, "max_adapter_memory": ALWAYS,
    "node_rank": Idle("--node-rank 1", "`node_rank` must be < `nnodes`"),
    "allow_clear_exchange": Idle("--allow-clear-exchange", "`allow_clear_exchange` is for several machines"),
    "max_concurrent_requests": Idle("--max-concurrent-requests 4 --max-batch-size 2", "--max-concurrent-requests has "
                                    "no effect: a group runs up to --max-batch-size 2 sequences at once"),
}
RUN_BATCH: dict[str, Acts] = dict.fromkeys(("input_file", "output_file", "in_order"), ALWAYS) | {
    name: SERVE[name] for name in SHARED_WITH_BATCHES}
QUANTIZE: dict[str, Acts] = {
    "model": ALWAYS, "out": ALWAYS, "method": ALWAYS, "bits": ALWAYS, "granularity": ALWAYS, "calibration": ALWAYS,
    "samples": ALWAYS, "length": ALWAYS, "judge": ALWAYS, "format_": ALWAYS,
    "group": Idle("--group 64 --granularity tensor", "--group 64: --granularity tensor has no groups"),
    "symmetric": Idle("--method squeezellm --asymmetric", "squeezellm has no --asymmetric"),
    "calibrator": Idle("--method squeezellm --calibrator mse", "and no --calibrator"),
    "percentile": Idle("--percentile 99", "--percentile 99 is for --calibrator percentile"),
}
BENCH_SERVE: dict[str, Acts] = dict.fromkeys((
    "url", "api", "is_streamed", "api_key", "scenario", "tokenizer", "requests", "ignore_eos", "limits", "fields",
    "seed", "warm_up", "timeout", "json_file", "picture_file"), ALWAYS) | {
    "prompts": Idle(f"--prompts {__file__} --scenario lecture", "--scenario and --prompts exclude each other"),
    "output_tokens": Idle("--output-tokens 5 --scenario lecture", "--scenario and --output-tokens exclude each other"),
    "model": Idle("--model x", "--model: the routes of --api tgi name no model"),
    "random_tokens": Idle(f"--random 5 --prompts {__file__}", "--prompts and --random exclude each other"),
    "concurrency": Idle("--concurrency 1 --rate 1", "--concurrency and --rate exclude each other"),
    "rate": Idle("--rate 1 --concurrency 1", "--concurrency and --rate exclude each other"),
}
PLAN: dict[str, Acts] = dict.fromkeys(("model", "dtype", "quantize", "kv_cache_dtype", "num_shard", "measure", "rate",
                                       "as_json", "picture_file"), ALWAYS) | {
    "machines": Idle("--measure --machine p5.4xlarge", "--machine is not for --measure"),
    "reach": Idle("--measure --reach 0.5", "--reach is not for --measure"),
    "price": Idle("--price 1", "--price is for --measure"),
    "rounds": Idle("--rounds 1", "--rounds is for --measure"),
    **{name: Idle(f"{option} {value}", f"{option} is for --rate") for name, option, value in (
        ("prompt", "--prompt-tokens", "5"), ("answer", "--answer-tokens", "5"), ("varied", "--varied", ""),
        ("requests", "--requests", "50"), ("first_token", "--target-first-token", "2"),
        ("percent", "--percentile", "50"), ("max_batch_size", "--max-batch-size", "8"))},
    "revision": Idle("--revision x", f"--revision x: {MODEL} is on this machine, and read as it is"),
}
COMMANDS: dict[str, dict[str, Acts]] = {
    "serve": SERVE,
    "group": GROUP,
    "run-batch": RUN_BATCH,
    "quantize": QUANTIZE,
    "plan": PLAN,
    "replay": {**dict.fromkeys(("file", "url", "is_verified", "key", "speed", "api_key"), ALWAYS),
               "clients": Idle("--speed 2 --clients 3", "--clients is for requests that are sent as soon as")},
    "convert": {"model": ALWAYS, "out": ALWAYS},
    "download": {name: OF_MODEL[name] for name in ("model_id", "revision", "huggingface_hub_cache")},
    "health": dict.fromkeys(("port", "hostname", "ssl_certfile", "timeout"), ALWAYS),
    "drain": {"group": ALWAYS, "groups": ALWAYS, "undo": ALWAYS, **OF_COMMANDS_TLS,
              "timeout": Idle("--undo --timeout 5", "`timeout` is not for `undo`, which waits for nothing")},
    "roll": {"groups": ALWAYS, "restart": ALWAYS, "timeout": ALWAYS, "dry_run": ALWAYS, **OF_COMMANDS_TLS},
    "tune": dict.fromkeys(("model_id", "num_shard", "dtype", "device", "deterministic", "max_rows"), ALWAYS),
    "detect-watermark": dict.fromkeys(("model_id", "file", "gamma", "as_json"), ALWAYS),
    "models list": dict.fromkeys(("url", "api_key", "as_json"), ALWAYS),
    **{f"models {name}": dict.fromkeys(("url", "api_key", "model"), ALWAYS) for name in ("load", "unload")},
    "models alias": dict.fromkeys(("url", "api_key", "alias", "targets", "shadows"), ALWAYS),
    "ray serve": {"file": ALWAYS, "wait": ALWAYS},
    "ray status": {"name": ALWAYS, "address": ALWAYS, "as_json": ALWAYS},
    "ray down": {"name": ALWAYS, "address": ALWAYS},
    **dict.fromkeys(("bench serve", "bench load"), BENCH_SERVE),
    "bench engine": dict.fromkeys(("model", "threads", "rounds", "sequences", "prompt", "new", "prefill", "is_sampled",
                                   "quantize", "beside", "checkout", "transformers", "vllm", "policies"), ALWAYS) | {
        "gap": Idle("--gap 0.1", "--gap is for --policy"), "json_file": Idle("--json x", "--json is for --policy"),
        "llama": Idle("--llama /tmp", "--llama needs --gguf"),
        "gguf": Idle(f"--gguf {__file__}", "--gguf is for --llama, which reads it")},
    "bench offline": dict.fromkeys(("model", "threads", "rounds", "number", "batch", "prompt", "new", "transformers",
                                    "vllm"), ALWAYS),
    "bench hits": dict.fromkeys(("url", "number", "tokens", "api_key"), ALWAYS),
    "bench deadlines": dict.fromkeys(("url", "number", "rate", "seed", "api_key"), ALWAYS),
    "bench loads": dict.fromkeys(("model", "flags", "streaming_model", "streams", "loads", "rounds", "keep_weights",
                                  "file"), ALWAYS),
    "bench plan": dict.fromkeys(("model", "step_seconds", "prompt", "answer", "rate", "clients", "requests", "rounds",
                                 "within"), ALWAYS) | {
        "flags": Idle("--flag=--threads=1 --step-seconds 0.1", "--flag is not for --step-seconds")},
    "bench turns": {"parts": ALWAYS, "flags": ALWAYS,
                    "rounds": Idle("cache --rounds 3", "--rounds is for first and parsers")},
    "bench embed": dict.fromkeys(("model", "threads", "formats", "rounds", "number", "longest", "compared", "seed",
                                  "json_file", "peers"), ALWAYS) | {
        "llama": Idle("--llama /tmp", "--llama needs --gguf"),
        "gguf": Idle(f"--gguf {__file__}", "--gguf is for --llama, which reads it")},
    "bench kernels attention": {"threads": ALWAYS, "rounds": ALWAYS},
    "bench kernels encoder": dict.fromkeys(("threads", "rounds", "stored", "layers", "hidden", "heads", "inner"),
                                           ALWAYS),
    "bench kernels linear": dict.fromkeys(("rows", "threads", "rounds", "contenders", "dtype", "hidden", "layers",
                                           "heads", "kv_heads", "head_size", "inner", "vocab"), ALWAYS),
    "bench kernels sampling": dict.fromkeys(("rows", "vocabulary", "threads", "history", "seconds"), ALWAYS),
}
NEEDED = {"serve": [MODEL], "group": [MODEL, "--listen", "127.0.0.1:4000"],
          "run-batch": [MODEL, "-i", "in", "-o", "out"], "quantize": [MODEL, "out"], "plan": [MODEL], "bench plan": [],
          "replay": [__file__],
          "download": [MODEL], "drain": ["127.0.0.1:4000"], "roll": ["--groups", "127.0.0.1:4000", "--restart", "x"],
          "bench serve": [], "bench load": [], "bench engine": [MODEL], "bench turns": [], "bench hits": [],
          "bench deadlines": [], "bench embed": [MODEL]}
"""The arguments without which a command does not get as far."""


def commands(group: click.Group, names: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*names, name))
        else:
            assert command is not None
            yield " ".join((*names, name)), command


def test_every_option_of_every_command_is_in_the_table() -> None:
    found = {name: {option.name for option in command.params if not isinstance(option, Noted | Unsupported)}
             for name, command in commands(main)}
    assert found == {name: set(options) for name, options in COMMANDS.items()}
    assert {option.name for option in launcher.main.params if not isinstance(option, Noted | Unsupported)} - {
        "version"} == set(SERVE)


def test_the_table_of_the_start_is_all_tried() -> None:
    tried = {name for options in (SERVE, GROUP) for name, acts in options.items()
             if isinstance(acts, Idle) and "has no effect" in acts.said}
    assert tried | {"allow_clear_exchange"} == {row.option for row in TABLE}


async def nothing(config: LauncherConfig, batch: Batch) -> None:
    """Stands for the answers to a batch."""


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Runs a command up to where something would be started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logs, "configure", lambda level, json_output, has_requests=True: None)
    monkeypatch.setattr(logs, "follow", lambda name, level: None)
    for module in (launcher, group_launch):
        monkeypatch.setattr(module, "launch", lambda config: 0)
    monkeypatch.setattr(batch_run, "run", nothing)
    (tmp_path / "in").touch()
    monkeypatch.setattr(hub, "find", lambda *_, **__: hub.Checkpoint(Path(MODEL), None))
    return lambda name, *arguments: CliRunner().invoke(main, [*name.split(), *NEEDED[name], *arguments])


CASES = [pytest.param(command, acts, id=f"{command} {option}") for command, options in COMMANDS.items()
         for option, acts in options.items() if isinstance(acts, Idle)]


@pytest.mark.parametrize(("command", "acts"), CASES)
def test_an_option_without_effect_is_told_or_refused(
    invoke: Callable[..., Result], command: str, acts: Idle, caplog: pytest.LogCaptureFixture
) -> None:
    result = invoke(command, *acts.arguments)
    assert acts.said in " ".join(f"{result.output} {' '.join(caplog.messages)}".split())
    assert (result.exit_code == 0) == ("has no effect" in acts.said), result.output


def test_a_limit_of_routes_that_no_line_can_name_is_no_option_of_batches(invoke: Callable[..., Result]) -> None:
    for name in OF_OTHER_ROUTES:
        result = invoke("run-batch", f"--{name.replace('_', '-')}")
        assert (result.exit_code, "No such option" in result.output) == (2, True)
