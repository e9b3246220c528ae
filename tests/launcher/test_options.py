"""The table of options against TGI's: names, variables, defaults, what is refused and what is only noted."""

import pytest
from click.testing import CliRunner

from penstock.launcher.cli import main as penstock
from penstock.launcher.launch import main
from penstock.launcher.option_types import Noted, Option, Unsupported
from penstock.launcher.options import OPTIONS

TGI = {
    "--model-id": "bigscience/bloom-560m", "--revision": None, "--validation-workers": 2, "--sharded": None,
    "--num-shard": None, "--quantize": None, "--speculate": None, "--dtype": None, "--kv-cache-dtype": None,
    "--trust-remote-code": False, "--max-concurrent-requests": 128, "--max-best-of": 2, "--max-stop-sequences": 4,
    "--max-top-n-tokens": 5, "--max-input-tokens": None, "--max-input-length": None, "--max-total-tokens": None,
    "--waiting-served-ratio": 0.3, "--max-batch-prefill-tokens": None, "--max-batch-total-tokens": None,
    "--max-waiting-tokens": 20, "--max-batch-size": None, "--cuda-graphs": "1,2,4,8,16,32", "--hostname": "0.0.0.0",
    "--port": 3000, "--prometheus-port": 9000, "--shard-uds-path": "/tmp/text-generation-server",
    "--master-addr": "localhost", "--master-port": 29500, "--huggingface-hub-cache": None,
    "--weights-cache-override": None, "--disable-custom-kernels": False, "--cuda-memory-fraction": 1.0,
    "--rope-scaling": None, "--rope-factor": None, "--json-output": False, "--otlp-endpoint": None,
    "--otlp-service-name": "text-generation-inference.router", "--cors-allow-origin": (), "--api-key": None,
    "--watermark-gamma": None, "--watermark-delta": None, "--ngrok": False, "--ngrok-authtoken": None,
    "--ngrok-edge": None, "--tokenizer-config-path": None, "--disable-grammar-support": False, "--env": False,
    "--max-client-batch-size": 4, "--lora-adapters": None, "--usage-stats": "on", "--payload-limit": 2_000_000,
    "--enable-prefill-logprobs": False, "--graceful-termination-timeout": 90,
}
OTHERWISE = {
    "--model-id": None,             # no model is a good guess
    "--api-key": (),                # several keys are possible
    "--shard-uds-path": None,       # a private directory
    "--master-port": None,          # a file in it
    "--max-client-batch-size": None,  # 4, or more texts of a model that makes vectors or scores
    "--usage-stats": "off",
    "--cuda-graphs": None,          # TGI's sizes, and larger ones as far as the batch can grow
}
OF_ITS_SERVER = {"--num-shard": 1, "--speculate": 0, "--watermark-gamma": 0.5, "--watermark-delta": 2.0}
"""What TGI's launcher leaves to its server."""
ADDED = {"--reasoning-parser": "auto", "--task": "auto",
         "--activations": None, "--model-impl": "auto", "--device": "auto", "--deterministic": False,
         "--kv-memory": None, "--block-size": 16, "--threads": None,
         "--pipeline-depth": None, "--pipeline-parallel-size": 1,
         "--step-timeout": 60, "--max-shard-downtime": 120, "--poison-memory": 600,
         "--startup-timeout": 120, "--models": None, "--model-repository": None, "--max-model-memory": None,
         "--max-load-wait": 120, "--model-keep-alive": 300, "--keep-weights": None, "--grpc-port": None,
         "--api-workers": 1, "--strict-streaming-errors": False, "--tgi-openai-routes": False,
         "--no-request-logs": False, "--vllm-metrics": False, "--triton-metrics": False, "--allow-priorities": False,
         "--trust-request-chat-template": False,
         "--data-dir": None, "--database-url": None, "--response-cache": None, "--response-cache-size": 256_000_000,
         "--response-cache-age": 3600, "--response-cache-shared": False,
         "--output-checks": None, "--receipt-key": None, "--prices": None, "--explained-requests": 1000,
         "--request-log": None, "--request-log-content": "hashes", "--request-log-redact": (),
         "--request-log-sample": 1.0, "--request-log-rotate": None,
         "--ssl-certfile": None,
         "--ssl-keyfile": None, "--api-key-file": None, "--metrics-key": (), "--max-adapter-memory": 2**30,
         "--allow-runtime-adapters": False, "--draft-model-id": None, "--groups": None,
         "--tool-call-parser": "auto", "--shard-tls-ca": None,
         "--shard-tls-cert": None, "--shard-tls-key": None, "--shard-tls-name": "penstock-shard"}
OF_TEI = {"--pooling": None, "--default-prompt-name": None, "--default-prompt": None, "--max-batch-tokens": None,
          "--max-batch-requests": None, "--auto-truncate": False}
"""Those by which Text Embeddings Inference has it."""
SHORT = {"--port": "-p", "--graceful-termination-timeout": "-g", "--env": "-e"}

BY_FLAG = {option.opts[0]: option for option in OPTIONS}
UNSUPPORTED = {flag: option for flag, option in BY_FLAG.items() if isinstance(option, Unsupported)}


def test_every_option_of_tgi_is_known_and_no_more():
    assert set(BY_FLAG) == set(TGI) | set(ADDED) | set(OF_TEI)


def test_defaults_are_those_of_tgi(monkeypatch):
    """Of options that do something, as the command's function gets them; the others have nothing to default to."""
    context = main.make_context("launcher", [])
    noted = {flag: option.get_default(context) for flag, option in BY_FLAG.items() if isinstance(option, Noted)}
    got = {f"--{name.replace('_', '-')}": value for name, value in context.params.items()} | noted
    assert {flag: got[flag] for flag in TGI if flag not in UNSUPPORTED} == \
        {flag: value for flag, value in (TGI | OTHERWISE | OF_ITS_SERVER).items() if flag not in UNSUPPORTED}


def test_added_options_are_marked_and_have_their_defaults():
    values = main.make_context("launcher", []).params
    for start, added in (("Penstock: ", ADDED), ("TEI's", OF_TEI)):
        assert {flag: values[BY_FLAG[flag].name] for flag in added} == added
        assert {flag for flag, option in BY_FLAG.items() if (option.help or "").startswith(start)} == set(added)


@pytest.mark.parametrize("flag", sorted(BY_FLAG))
def test_names(flag):
    option = BY_FLAG[flag]
    assert option.opts[1:] == [SHORT[flag]] if flag in SHORT else option.opts[1:] == []
    others = {"--env": None, "--port": ["AIP_HTTP_PORT", "PORT"], "--groups": "PENSTOCK_GROUPS",
              "--database-url": "PENSTOCK_DATABASE_URL"}
    variable = others.get(flag, flag[2:].replace("-", "_").upper())
    assert option.envvar == variable


VALUES = {"--rope-factor": "2"}


@pytest.mark.parametrize("flag", sorted(UNSUPPORTED))
def test_unsupported_is_refused_by_name(invoke, started, flag):
    option = UNSUPPORTED[flag]
    value = [] if option.is_flag else [VALUES.get(flag, "secret")]
    result = invoke("--model-id", "m", flag, *value)
    assert result.exit_code == 2
    assert result.output == f"Invalid argument: {flag}: not supported by this release, leave it out\n"
    result = invoke("--model-id", "m", **{option.envvar: "true" if option.is_flag else value[0]})
    assert result.exit_code == 2
    assert result.output == f"Invalid argument: {flag} (environment variable {option.envvar}): " \
                            "not supported by this release, leave it out\n"
    assert not started


@pytest.mark.parametrize(("variable", "value"), [
    ("TRUST_REMOTE_CODE", "false"), ("DISABLE_CUSTOM_KERNELS", "false"), ("QUANTIZE", ""),
    ("NGROK", "0"), ("LORA_ADAPTERS", ""), ("API_KEY", ""), ("METRICS_KEY", ""), ("CORS_ALLOW_ORIGIN", "")])
def test_value_that_asks_for_nothing_is_accepted(parse, variable, value):
    parse(**{variable: value})


@pytest.mark.parametrize(("arguments", "sentence"), [
    (["--waiting-served-ratio", "1.2"], "--waiting-served-ratio: 1.2 has no effect, since prefill is chunked"),
    (["--max-waiting-tokens", "5"], "--max-waiting-tokens: 5 has no effect, since prefill is chunked"),
    (["--prometheus-port", "9001"],
     "--prometheus-port: nothing listens on 9001, metrics are at /metrics of the main port"),
    (["--usage-stats", "on"], "--usage-stats: there are no usage statistics, nothing is sent"),
    (["--usage-stats", "off"], None),
    ([], None)])
def test_option_without_effect_is_noted_when_given(parse, caplog, arguments, sentence):
    parse(*arguments)
    assert [record.message for record in caplog.records] == ([sentence] if sentence else [])


def test_option_without_effect_is_noted_from_the_environment(parse, caplog):
    parse(MAX_WAITING_TOKENS="7")
    assert "--max-waiting-tokens (environment variable MAX_WAITING_TOKENS): 7 has no effect" in caplog.text


def test_bad_value_of_a_variable_names_it(invoke):
    result = invoke("--model-id", "m", PORT="tcp://10.0.0.1:80")
    assert result.exit_code == 2
    assert "Invalid value for '--port' / '-p' (env var: 'AIP_HTTP_PORT', 'PORT'): 'tcp://10.0.0.1:80' is not a valid " \
        "integer" in result.output


def test_help_shows_every_option_and_names_the_refused(invoke):
    page = invoke("--help").output
    assert "\nMemory and batches:\n" in page
    for option in OPTIONS:
        assert isinstance(option, Option)
        assert option.opts[0] in page
        assert isinstance(option, Unsupported | Noted) or option.help
    assert "None" not in page, "a number without bounds has none to be named"


def test_penstock_serve_takes_the_model_and_the_same_options(started):
    result = CliRunner().invoke(penstock, ["serve", "some/model", "-p", "8080", "--num-shard", "2"])
    assert result.exit_code == 0, result.output
    assert (started[0].model_id, started[0].port, started[0].num_shard) == ("some/model", 8080, 2)


def test_penstock_serve_takes_the_model_from_the_environment(started):
    result = CliRunner().invoke(penstock, ["serve"], env={"MODEL_ID": "from/environment"})
    assert result.exit_code == 0, result.output
    assert started[0].model_id == "from/environment"
