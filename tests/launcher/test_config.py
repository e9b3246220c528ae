"""From parsed options to the launcher's and the router's settings."""

import dataclasses
import os
import socket
from pathlib import Path

import pytest

from penstock.launcher.config import LauncherConfig
from penstock.launcher.hub import Checkpoint
from penstock.launcher.programs import router_programs, shard_program
from penstock.launcher.socket_folder import SocketFolder
from penstock.router.config import SOURCE_KEYS, RouterConfig
from penstock.router.foreign_settings import ForeignSettings
from penstock.shard.config import ShardConfig
from penstock.system import child_environment, settings
from penstock.system.setting import Who


@pytest.mark.parametrize(("arguments", "message"), [
    (["--max-input-tokens", "10", "--max-input-length", "20"],
     "Both `max_input_tokens` (10) and `max_input_length` (20) are set. Please define only `max_input_tokens` as "
     "`max_input_length is deprecated for naming consistency."),
    (["--max-input-tokens", "10", "--max-total-tokens", "10"],
     "`max_input_tokens`(10) must be < `max_total_tokens`(10)"),
    (["--max-input-length", "11", "--max-total-tokens", "10"],
     "`max_input_tokens`(11) must be < `max_total_tokens`(10)"),
    (["--max-total-tokens", "33", "--max-batch-total-tokens", "32"],
     "`max_total_tokens` must be <= `max_batch_total_tokens`. Given: 33 and 32"),
    (["--max-batch-prefill-tokens", "33", "--max-batch-total-tokens", "32"],
     "`max_batch_prefill_tokens` must be <= `max_batch_total_tokens`. Given: 33 and 32"),
    (["--max-input-tokens", "32", "--max-batch-total-tokens", "32"],
     "`max_input_tokens` must be < `max_batch_total_tokens`. Given: 32 and 32"),
    (["--max-total-tokens", "1"], "`max_total_tokens` must be >= 2. Given: 1"),
    (["--max-batch-prefill-tokens", "1"], "`max_batch_prefill_tokens` must be >= 2. Given: 1"),
    (["--validation-workers", "0"], "`validation_workers` must be > 0"),
    (["--max-batch-size", "0"], "`max_batch_size` must be > 0"),
    (["--num-shard", "6", "--pipeline-parallel-size", "4"],
     "`pipeline_parallel_size` must divide `num_shard`. Given: 4 and 6"),
    (["--num-shard", "2", "--pipeline-parallel-size", "2", "--speculate", "2", "--draft-model-id", "d"],
     "`draft_model_id` needs shards that have all layers: a `pipeline_parallel_size` of 1. Given: 2"),
    (["--draft-model-id", "d"], "`draft_model_id` needs a `speculate` above 0, the most tokens that it may propose"),
    (["--draft-model-id", "d", "--speculate", "0"],
     "`draft_model_id` needs a `speculate` above 0, the most tokens that it may propose"),
    (["--num-shard", "2", "--master-port", "1", "--master-addr", "10.0.0.1"],
     "`master_addr`: the shards of one machine do not meet in the clear at 10.0.0.1, where others can reach them: "
     "leave out `master_port`"),
    (["--num-shard", "0"], "`num_shard` cannot be < 1"),
    (["--sharded", "true"], "`sharded` is true but `num_shard` <= 1"),
    (["--sharded", "true", "--num-shard", "1"], "`sharded` is true but `num_shard` <= 1"),
    (["--hostname", "example"], "`hostname` must be an IP address or localhost, not 'example'"),
    (["--model-id", ""], "`model_id` is missing: name a directory, or a model on the Hugging Face Hub"),
    (["--shard-uds-path", "/run/\udcff"], "`shard_uds_path` must be UTF-8"),
    (["--api-key", ""], "`api_key` must have printable characters, and no space at its ends"),
    (["--api-key", "key "], "`api_key` must have printable characters, and no space at its ends"),
    (["--metrics-key", " key"], "`metrics_key` must have printable characters, and no space at its ends"),
    (["--api-key-file", "/no/file"], "`api_key_file`: cannot read /no/file: No such file or directory"),
    (["--prices", "/no/file", "--data-dir", "/a"], "`prices`: cannot read /no/file: No such file or directory"),
    (["--api-key", "key\n"], "`api_key` must have printable characters, and no space at its ends"),
    (["--ssl-certfile", "cert.pem"], "`ssl_certfile` and `ssl_keyfile` must be given together"),
    (["--ssl-keyfile", "key.pem"], "`ssl_certfile` and `ssl_keyfile` must be given together"),
    (["--grpc-port", "3000"], "`grpc_port` and `port` must be different. Given: 3000"),
    (["--grpc-port", "3001", "--api-key", "schlüssel"],
     "`api_key` must be ASCII where there is a `grpc_port`: gRPC can send no other"),
    (["--cors-allow-origin", "https://a.example", "--cors-allow-origin", "b.example"],
     "`cors_allow_origin` must be an origin such as https://example.org, or *; several are given by as many options, "
     "or with spaces in the variable. Given: 'b.example'"),
    (["--response-cache", "redis"], "`response_cache` must be memory, sqlite, postgresql, or a URL such as "
     "redis://host:6379/0. Given: redis"),
    (["--response-cache", "http://a:s3cret@b"], "`response_cache` must be memory, sqlite, postgresql, or a URL such as "
     "redis://host:6379/0. Given: http"),
    (["--response-cache", "postgresql"], "`response_cache` postgresql needs a `database_url`"),
    (["--request-log", "log.txt"], "`request_log` must be a file that ends with .jsonl, sqlite or postgresql. "
     "Given: log.txt"),
    (["--request-log", "postgresql"], "`request_log` postgresql needs a `database_url`"),
    (["--request-log", "a.jsonl", "--request-log-content", "texts", "--request-log-redact", "("],
     "`request_log_redact` must be a regular expression: missing ), unterminated subpattern at position 0. Given: ("),
    (["--cors-allow-origin", "https://\udcff.example"], "`cors_allow_origin` must be UTF-8")])
def test_settings_that_contradict_are_refused(invoke, started, arguments, message):
    result = invoke("--model-id", "m", *arguments)
    assert result.output == f"Invalid argument: {message}\n"
    assert result.exit_code == 2
    assert not started


@pytest.mark.parametrize(("variable", "value", "name"), [
    ("COMPUTE_TYPE", "\udcff", "compute_type"), ("AIP_PREDICT_ROUTE", "/\udcff", "vertex_predict_route")])
def test_variables_without_a_flag_must_be_utf_8(invoke, monkeypatch, variable, value, name):
    monkeypatch.setenv(variable, value)
    result = invoke("--model-id", "m")
    assert (result.output, result.exit_code) == (f"Invalid argument: `{name}` must be UTF-8\n", 2)


@pytest.mark.parametrize(("arguments", "name", "value"), [
    (["--max-input-length", "20"], "max_input_tokens", 20),
    (["--max-input-tokens", "20"], "max_input_tokens", 20),
    (["--sharded", "true", "--num-shard", "2"], "num_shard", 2),
    (["--sharded", "false", "--num-shard", "2"], "num_shard", 2),
    ([], "num_shard", 1),
    ([], "max_total_tokens", None),
    (["--hostname", "localhost"], "hostname", "127.0.0.1"),
    (["--hostname", "::"], "hostname", "::"),
    (["--kv-memory", "1048576"], "kv_memory", 2**20),
    (["--kv-memory", "4GiB"], "kv_memory", 4 * 2**30),
    (["--kv-memory", "1.5 MB"], "kv_memory", 1_500_000),
    (["--kv-memory", "2k"], "kv_memory", 2000),
    (["-g", "5"], "graceful_termination_timeout", 5),
    (["--pipeline-depth", "1"], "pipeline_depth", 1),
    ([], "pipeline_depth", None),
    (["--num-shard", "8", "--pipeline-parallel-size", "4"], "pipeline_parallel_size", 4),
    (["--max-shard-downtime", "0"], "max_shard_downtime", 0),
    (["--step-timeout", "7"], "step_timeout", 7),
    (["--poison-memory", "0"], "poison_memory", 0),
    ([], "step_timeout", 60),
    (["--dtype", "float32"], "dtype", "float32"),
    (["--device", "cpu"], "device", "cpu"),
    (["--deterministic"], "deterministic", True),
    ([], "cuda_graphs", None),
    (["--cuda-graphs", "0"], "cuda_graphs", (0,)),
    (["--cuda-graphs", "1,2, 40"], "cuda_graphs", (1, 2, 40)),
    (["--cuda-memory-fraction", "0.5"], "cuda_memory_fraction", 0.5),
    (["--kv-cache-dtype", "fp8_e5m2"], "kv_cache_dtype", "fp8_e5m2"),
    (["--quantize", "bitsandbytes-nf4"], "quantize", "bitsandbytes-nf4"),
    (["--activations", "bf16"], "activations", "bf16"),
    (["--model-impl", "transformers"], "model_impl", "transformers"),
    (["--rope-scaling", "dynamic"], "rope_scaling", "dynamic"),
    (["--rope-factor", "2.5"], "rope_scaling", "linear"),
    (["--watermark-gamma", "0.25"], "watermark_gamma", 0.25),
    ([], "watermark_delta", 2.0),
    (["--cors-allow-origin", "https://a.example", "--cors-allow-origin", "*"], "cors_allow_origin",
     ("https://a.example", "*")),
    ([], "cors_allow_origin", ()),
    (["--otlp-endpoint", "http://here:4317"], "otlp_endpoint", "http://here:4317"),
    ([], "otlp_service_name", "text-generation-inference.router"),
    (["--grpc-port", "3001"], "grpc_port", 3001),
    (["--enable-prefill-logprobs"], "enable_prefill_logprobs", True),
    (["--disable-grammar-support"], "disable_grammar_support", True),
    (["--strict-streaming-errors"], "strict_streaming_errors", True),
    (["--tgi-openai-routes"], "tgi_openai_routes", True),
    (["--tokenizer-config-path", __file__], "tokenizer_config_path", Path(__file__)),
    (["--huggingface-hub-cache", "/data"], "huggingface_hub_cache", Path("/data"))])
def test_value(parse, arguments, name, value):
    assert getattr(parse(*arguments), name) == value


def test_what_only_gpus_of_others_can_read_is_refused_by_its_name(invoke, started):
    result = invoke("--model-id", "m", "--quantize", "exl2")
    assert result.exit_code == 2
    assert result.output.startswith("Invalid argument: `quantize` exl2: its files need kernels for GPUs")
    assert not started


@pytest.mark.parametrize("text", ["4Q", "GiB", "-1", "4 i", "0", "1e9"])
def test_number_of_bytes_that_is_none(invoke, text):
    result = invoke("--model-id", "m", f"--kv-memory={text}")
    assert result.exit_code == 2
    assert repr(text) in result.output


@pytest.mark.parametrize("arguments", [["--pipeline-depth", "0"], ["--step-timeout", "0"],
                                       ["--cuda-memory-fraction", "0"], ["--cuda-memory-fraction", "1.5"],
                                       ["--cuda-graphs", "1;2"], ["--cuda-graphs", "-1"], ["--cuda-graphs", ""],
                                       ["--kv-cache-dtype", "fp8"], ["--device", "gpu"],
                                       ["--quantize", "int3"], ["--activations", "int4"],
                                       ["--max-shard-downtime", "-1"], ["--watermark-gamma", "1"],
                                       ["--watermark-gamma", "0"], ["--watermark-delta", "nan"],
                                       ["--tokenizer-config-path", "/no/such/file"], ["--ssl-keyfile"]])
def test_number_out_of_range(invoke, started, arguments):
    result = invoke("--model-id", "m", *arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.output
    assert not started


def test_flag_wins_over_variable(parse):
    assert parse("--port", "1", PORT="2", MAX_BEST_OF="3").port == 1
    assert parse(MAX_BEST_OF="3", JSON_OUTPUT="true").max_best_of == 3


def test_port_that_vertex_names_goes_before_the_images(parse):
    assert parse(PORT="80", AIP_HTTP_PORT="8081").port == 8081
    assert parse("--port", "1", AIP_HTTP_PORT="8081").port == 1


def test_paths_that_vertex_names(parse, invoke):
    config = parse(AIP_PREDICT_ROUTE="/v1/endpoints/1:predict", AIP_HEALTH_ROUTE="")
    assert (config.vertex_predict_route, config.vertex_health_route) == ("/v1/endpoints/1:predict", None)
    result = invoke("--model-id", "m", AIP_HEALTH_ROUTE="health{}")
    assert (result.exit_code, result.output) == (
        2, "Invalid argument: AIP_HEALTH_ROUTE must be a path such as /predict. Given: 'health{}'\n")


def test_origins_by_a_variable(parse):
    assert parse(CORS_ALLOW_ORIGIN="https://a.example http://b.example:81").cors_allow_origin == \
        ("https://a.example", "http://b.example:81")


def test_the_key_is_not_on_the_command_line(parse, monkeypatch):
    config = parse("--api-key", "s3cret", "--api-key", "Schlüssel", API_KEY="another")
    [router] = router_programs(config, Checkpoint(Path("/models/m"), None), SocketFolder(Path("/tmp/s")), 3, [4])
    assert "s3cret" not in str(router.argv) + repr(router) + repr(config) + repr(parse(API_KEY="s3cret"))
    assert router.environment["API_KEY"] == "s3cret\nSchlüssel"
    monkeypatch.setenv("API_KEY", router.environment["API_KEY"])
    told = RouterConfig.from_argv([*router.argv[router.argv.index("penstock.router") + 1:], "--signs-fd", "5"])
    assert told.api_key == ("s3cret", "Schlüssel")


def test_a_password_in_a_url_is_not_on_the_command_line(parse, monkeypatch):
    config = parse("--response-cache", "redis://:s3cret@host/0")
    [router] = router_programs(config, Checkpoint(Path("/models/m"), None), SocketFolder(Path("/tmp/s")), 3, [4])
    assert "s3cret" not in str(router.argv) + repr(router) + repr(config)
    monkeypatch.setenv("RESPONSE_CACHE", router.environment["RESPONSE_CACHE"])
    told = RouterConfig.from_argv([*router.argv[router.argv.index("penstock.router") + 1:], "--signs-fd", "5"])
    assert told.response_cache == "redis://:s3cret@host/0"


def test_keys_by_variables_are_one_a_line(parse):
    config = parse(API_KEY="a b\nc", METRICS_KEY="d")
    assert (config.api_key, config.metrics_key) == (("a b", "c"), ("d",))


def test_hostname_of_a_container_becomes_any(parse, caplog):
    assert parse(HOSTNAME="f2a91c0de812").hostname == "0.0.0.0"
    assert "Invalid hostname 'f2a91c0de812' in HOSTNAME, defaulting to 0.0.0.0" in caplog.text


def test_hostname_that_is_the_machines_own_is_not_worth_a_word(parse, caplog, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "f2a91c0de812")
    assert parse(HOSTNAME="f2a91c0de812").hostname == "0.0.0.0"
    assert caplog.text == ""


@pytest.mark.parametrize(("text", "level"), [
    ("", "INFO"), ("debug", "DEBUG"), ("WARN", "WARNING"), ("info,text_generation_router=debug", "DEBUG"),
    ("text_generation_router=error, debug", "ERROR"), ("error,hyper=trace", "ERROR"), ("=,,x=y=z,nonsense", "INFO"),
    ("off", "CRITICAL")])
def test_log_level_as_tgi_reads_it(parse, text, level):
    assert parse(LOG_LEVEL=text).log_level == level


def test_each_kind_of_process_has_its_log_level(parse, caplog):
    config = parse(LOG_LEVEL="warn,text_generation_server=debug,text_generation_launcher=error")
    assert (config.launcher_log_level, config.log_level, config.shard_log_level) == ("ERROR", "WARNING", "DEBUG")
    assert caplog.text == ""


@pytest.mark.parametrize(("text", "words"), [
    ("verbose", ["LOG_LEVEL: verbose has no effect: levels are trace, debug, info, "]),
    ("info,h2=warn,text_generation_router=loud", ["LOG_LEVEL: h2=warn has no effect", "router=loud has no effect"]),
    ("debug", [])])
def test_what_log_level_does_not_say_is_told(parse, caplog, text, words):
    parse(LOG_LEVEL=text)
    assert len(caplog.messages) == len(words)
    for said, expected in zip(caplog.messages, words, strict=True):
        assert expected in said


def test_compute_type(parse):
    assert parse().compute_type is None
    assert parse(COMPUTE_TYPE="2-avx512").compute_type == "2-avx512"


@pytest.fixture
def router_config(parse) -> RouterConfig:
    config = parse("--max-input-tokens", "7", "--max-batch-size", "3", "--hostname", "::1", "--pipeline-depth", "3",
                   "--max-shard-downtime", "4")
    return config.for_router(model_dir=Path("/models/a b"), tokenizer_json=Path("/models/a b/tokenizer.json"),
                             revision="abc", shard_sockets=["unix:/x-0", "unix:/x-1"], listen_fd=3, notices_fd=4)


def test_router_config_survives_json(router_config):
    copy = RouterConfig.from_json(router_config.to_json())
    assert copy == router_config
    assert isinstance(copy.model_dir, Path)
    assert copy.shard_sockets == ("unix:/x-0", "unix:/x-1")
    assert RouterConfig.from_argv(["--config", router_config.to_json(), "--signs-fd", "5"]) == \
        dataclasses.replace(router_config, signs_fd=5)


def test_keys_for_other_servers_come_by_the_environment_alone(router_config, monkeypatch):
    far = ForeignSettings(name="far", urls=("http://x",), model="far", max_concurrent_requests=1, api_key="sk-1")
    config = dataclasses.replace(router_config, elsewhere=(far,))
    assert "sk-1" not in config.to_json() + repr(config)
    monkeypatch.setenv(SOURCE_KEYS, config.environment[SOURCE_KEYS])
    assert RouterConfig.from_argv(["--config", config.to_json(), "--signs-fd", "5"]).elsewhere == (far,)


def test_router_config_holds_what_the_launcher_was_told(router_config, parse):
    config = parse("--max-input-tokens", "7", "--max-batch-size", "3", "--hostname", "::1", "--pipeline-depth", "3",
                   "--max-shard-downtime", "4")
    for name, value in settings.told_to(Who.ROUTER, config).items():
        assert getattr(router_config, name) == value
    assert router_config.model_id == "some/model"


@pytest.mark.parametrize(("damage", "named"), [
    (lambda text: text.replace('"port":3000', '"port":"x"'), "port"),
    (lambda text: text.replace('"model_dir":"/models/a b",', ""), "model_dir"),
    (lambda text: text.replace('"hostname":"::1"', '"hostname":"::1","color":1'), "color"),
    (lambda text: "{", "JSON")])
def test_bad_router_config_ends_the_process_and_names_the_field(router_config, capsys, damage, named):
    with pytest.raises(SystemExit) as end:
        RouterConfig.from_argv(["--config", damage(router_config.to_json()), "--signs-fd", "5"])
    assert end.value.code == 2
    assert named in capsys.readouterr().err


def told_to(program):
    return ShardConfig.from_argv(program.argv[program.argv.index("penstock.shard") + 1:])


def test_programs_of_a_group(parse):
    config = parse("--num-shard", "2", "--kv-memory", "1GiB", "--dtype", "bfloat16", "--json-output")
    checkpoint = Checkpoint(Path("/models/m"), None)
    shard = shard_program(config, checkpoint, 1, SocketFolder(Path("/tmp/s")), "file:///tmp/r")
    assert told_to(shard) == ShardConfig(
        model=Path("/models/m"), model_id="some/model", rank=1, world_size=2, listen="unix:/tmp/s/shard-1",
        rendezvous="file:///tmp/r", dtype="bfloat16", kv_memory=2**30, parent_pid=os.getpid(), orphan_seconds=90,
        json_output=True)
    assert shard.gives_signs
    config = parse("--num-shard", "2", "--quantize", "int4", "--activations", "bf16")
    shard = shard_program(config, checkpoint, 0, SocketFolder(Path("/tmp/s")), "file:///tmp/r")
    assert (told_to(shard).quantize, told_to(shard).activations) == ("int4", "bf16")
    config = parse("--num-shard", "2", "--rope-factor", "4")
    shard = shard_program(config, checkpoint, 0, SocketFolder(Path("/tmp/s")), "file:///tmp/r")
    assert (told_to(shard).rope_scaling, told_to(shard).rope_factor) == ("linear", 4.0)
    config = parse("--num-shard", "2", "--watermark-gamma", "0.25", "--watermark-delta", "1")
    shard = shard_program(config, checkpoint, 0, SocketFolder(Path("/tmp/s")), "file:///tmp/r")
    assert (told_to(shard).watermark_gamma, told_to(shard).watermark_delta) == (0.25, 1.0)
    [router] = router_programs(config, checkpoint, SocketFolder(Path("/tmp/s")), 3, [4])
    assert router.fds == [3, 4]
    told = RouterConfig.from_argv([*router.argv[router.argv.index("penstock.router") + 1:], "--signs-fd", "5"])
    assert told.shard_sockets == ("unix:/tmp/s/shard-0", "unix:/tmp/s/shard-1")
    assert told.model_dir == Path("/models/m")
    assert told.tokenizer_json == Path("/models/m/tokenizer.json")


@pytest.mark.parametrize("was_there", [True, False])
def test_who_outlives_the_launcher_is_told_whether_the_folder_stays(parse, was_there):
    config, checkpoint, folder = parse(), Checkpoint(Path("/models/m"), None), SocketFolder(Path("/tmp/s"), was_there)
    assert told_to(shard_program(config, checkpoint, 0, folder, "")).keeps_folder == was_there
    [router] = router_programs(config, checkpoint, folder, 3, [4])
    told = RouterConfig.from_argv([*router.argv[router.argv.index("penstock.router") + 1:], "--signs-fd", "5"])
    assert told.keeps_folder == was_there


def test_a_shard_is_told_what_its_gpu_is_for(parse):
    config = parse("--device", "cuda", "--deterministic", "--kv-cache-dtype", "int8", "--cuda-graphs", "8,1",
                   "--cuda-memory-fraction", "0.75", "--max-batch-prefill-tokens", "2048", "--max-batch-size", "40")
    folder = SocketFolder(Path("/tmp/s"))
    shard = shard_program(config, Checkpoint(Path("/models/m"), None), 0, folder, "file:///tmp/r")
    told = told_to(shard)
    assert {name: getattr(told, name) for name in (
        "device", "deterministic", "kv_cache_dtype", "cuda_graphs", "cuda_memory_fraction", "max_step_tokens",
        "max_step_rows")} == {
            "device": "cuda", "deterministic": True, "kv_cache_dtype": "int8", "cuda_graphs": (8, 1),
            "cuda_memory_fraction": 0.75, "max_step_tokens": 2048, "max_step_rows": 40}


@pytest.mark.parametrize(("is_terminal", "arguments", "has_bars"), [
    (True, [], True), (True, ["--json-output"], False), (False, [], False)])
def test_a_shard_shows_bars_to_people(parse, monkeypatch, is_terminal, arguments, has_bars):
    config = parse(*arguments)
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    shard = shard_program(config, Checkpoint(Path("/models/m"), None), 0, SocketFolder(Path("/tmp/s")), "")
    assert told_to(shard).has_bars == has_bars


@pytest.mark.parametrize("environment", [child_environment.for_shard, child_environment.for_router])
def test_grpc_writes_no_lines_of_its_own_unless_asked(monkeypatch, environment):
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    assert environment()["GRPC_VERBOSITY"] == "NONE"
    monkeypatch.setenv("GRPC_VERBOSITY", "DEBUG")
    assert environment()["GRPC_VERBOSITY"] == "DEBUG"


def test_grpc_writes_no_lines_in_the_launcher_unless_asked(monkeypatch):
    monkeypatch.setattr("os.environ", {"HOME": "/home/me"})
    child_environment.prepare_grpc()
    assert os.environ == {"HOME": "/home/me", "GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
    os.environ["GRPC_VERBOSITY"] = "DEBUG"
    child_environment.prepare_grpc()
    assert os.environ["GRPC_VERBOSITY"] == "DEBUG"


def test_launcher_config_is_frozen(parse):
    config: LauncherConfig = parse()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.port = 1


@pytest.mark.parametrize(("made_of", "expected"), [(Path("/models/a.gguf"), "models/a.gguf"), (None, None)])
def test_processes_know_what_the_user_called_a_gguf_file(parse, made_of, expected):
    """Which their messages then name, in place of the directory that was made of it."""
    config, checkpoint = parse("--model-id", "models/a.gguf"), Checkpoint(Path("/m"), None, made_of)
    folder = SocketFolder(Path("/tmp/s"))
    assert told_to(shard_program(config, checkpoint, 0, folder, "file:///tmp/r")).made_of == expected
    [router] = router_programs(config, checkpoint, folder, 3, [4])
    assert RouterConfig.from_json(router.argv[router.argv.index("--config") + 1]).made_of == expected
