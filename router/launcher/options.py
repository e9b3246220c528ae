"""The one definition of every option of the launcher: names, environment variables, defaults, help.

Names, variables (the name in capitals) and defaults are those of TGI's launcher; a command line or manifest made for
it is either obeyed or refused with a sentence, never half understood. What only we have is marked "Penstock:".
"""

import ipaddress
import re
from pathlib import Path

import click
from click.core import ParameterSource

from penstock.router.config import InvalidArgument
from penstock.router.launcher.option_types import (
    COUNT,
    PORT,
    POSITIVE,
    U32,
    ByteSize,
    Counts,
    Integer,
    Noted,
    Number,
    Option,
    Unsupported,
    note,
)


def _hostname(context: click.Context, option: click.Parameter, value: str) -> str:
    """An IP address. Containers set HOSTNAME to their own name, which must not keep the server from starting."""
    address = "127.0.0.1" if value == "localhost" else value
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        if option.name and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise InvalidArgument(f"`hostname` must be an IP address or localhost, not {value!r}") from None
        note(context, f"Invalid hostname {value!r} in HOSTNAME, defaulting to 0.0.0.0")
        return "0.0.0.0"


def _origins(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """What a browser may send as `Origin`, or `*`; anything else would never match."""
    for origin in value:
        if origin not in ("*", "null") and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/,]+", origin):
            raise InvalidArgument("`cors_allow_origin` must be an origin such as https://example.org, or *; several "
                                  f"are given by as many options, or with spaces in the variable. Given: {origin!r}")
    return value


def _no_statistics(value: str) -> str | None:
    return None if value == "off" else "there are no usage statistics, nothing is sent"


MODEL, MEMORY, LIMITS = "Model", "Memory and batches", "Limits of a request"
SERVER, ACCESS, SHARDS, REST = "Server", "Access", "Shards", "Other"

OPTIONS: list[click.Parameter] = [
    Option("--model-id", MODEL, "A directory with a checkpoint, or a name on the Hugging Face Hub. Required."),
    Option("--revision", MODEL, "Branch, tag or commit on the Hub."),
    Option("--dtype", MODEL, "Number format of weights and activations. Default: the checkpoint's own. "
           "float32 is Penstock's addition.", type=click.Choice(["float16", "bfloat16", "float32"])),
    Option("--huggingface-hub-cache", MODEL, "Directory of downloaded checkpoints.",
           type=click.Path(file_okay=False, path_type=Path)),
    Option("--tokenizer-config-path", MODEL, "The file whose chat template is used instead of the checkpoint's.",
           type=click.Path(exists=True, dir_okay=False, path_type=Path)),
    Option("--watermark-gamma", MODEL, "Share of the vocabulary that a watermark prefers. Default: 0.5.",
           type=Number(0, 1, min_open=True, max_open=True)),
    Option("--watermark-delta", MODEL, "How much a watermark prefers it, in logits. Default: 2.0.", type=Number()),

    Option("--kv-memory", MEMORY, "Penstock: memory of each shard for keys and values, such as 4GiB. Default: what the "
           "model leaves of a GPU's memory; on a processor a share of what is free.", type=ByteSize()),
    Option("--kv-cache-dtype", MEMORY, "Number format of keys and values. Default: that of the weights. int8 is "
           "Penstock's addition, and what a processor has of the three.",
           type=click.Choice(["fp8_e4m3fn", "fp8_e5m2", "int8"])),
    Option("--cuda-memory-fraction", MEMORY, "Share of each GPU's memory that may be used.",
           type=Number(0, 1, min_open=True), default=1.0),
    Option("--block-size", MEMORY, "Penstock: tokens in a block of that memory. Default: 16.", type=POSITIVE),
    Option("--max-batch-prefill-tokens", MEMORY, "Tokens that one step computes at most. Default: what runs in about "
           "250 ms, measured at start, and at most 4096.", type=Integer(1, 2**32 - 1)),
    Option("--max-batch-total-tokens", MEMORY, "Tokens whose keys and values are held at once, at most. "
           "Default: what the memory holds.", type=Integer(1, 2**32 - 1)),
    Option("--max-batch-size", MEMORY, "Sequences that run at once, at most.", type=COUNT),
    Option("--pipeline-depth", MEMORY, "Penstock: steps in flight at once; 1 waits for each step before it plans the "
           "next.", type=POSITIVE, default=2),
    Noted("--waiting-served-ratio", MEMORY, "Accepted; no effect, since prefill is chunked.", type=float,
          default=0.3, note=lambda value: f"{value} has no effect, since prefill is chunked"),
    Noted("--max-waiting-tokens", MEMORY, "Accepted; no effect, since prefill is chunked.", type=COUNT,
          default=20, note=lambda value: f"{value} has no effect, since prefill is chunked"),

    Option("--max-input-tokens", LIMITS, "Length of a prompt. Default: max-total-tokens - 1.", type=POSITIVE),
    Option("--max-input-length", LIMITS, "The old name of --max-input-tokens.", type=POSITIVE),
    Option("--max-total-tokens", LIMITS, "Length of a prompt and its answer. "
           "Default: the model's context, or 7/8 of the KV memory if that is less.", type=POSITIVE),
    Option("--max-concurrent-requests", LIMITS, "Requests in the server; more are answered with 429.",
           type=POSITIVE, default=128),
    Option("--max-best-of", LIMITS, "Candidates for one answer.", type=COUNT, default=2),
    Option("--max-stop-sequences", LIMITS, "Stop strings.", type=COUNT, default=4),
    Option("--max-top-n-tokens", LIMITS, "Alternatives reported for each token.", type=U32, default=5),
    Option("--max-client-batch-size", LIMITS, "Prompts in one request.", type=COUNT, default=4),
    Option("--payload-limit", LIMITS, "Bytes of a request's body.", type=COUNT, default=2_000_000),
    Option("--enable-prefill-logprobs", LIMITS, "Answer requests for the logprobs of the prompt's tokens.",
           is_flag=True),
    Option("--disable-grammar-support", LIMITS, "Refuse requests for structured output.", is_flag=True),

    Option("--hostname", SERVER, "IP address to listen on. A HOSTNAME that is none becomes 0.0.0.0.",
           default="0.0.0.0", callback=_hostname),
    Option("--port -p", SERVER, "Port to listen on.", type=PORT, default=3000, envvar=["AIP_HTTP_PORT", "PORT"]),
    Option("--grpc-port", SERVER, "Penstock: port of the gRPC API. Default: there is none.",
           type=Integer(1, 2**16 - 1)),
    Option("--validation-workers", SERVER, "Threads that tokenise.", type=COUNT, default=2),
    Option("--graceful-termination-timeout -g", SERVER, "Seconds that running requests get after SIGTERM.",
           type=COUNT, default=90),
    Noted("--prometheus-port", SERVER, "Accepted; metrics are at /metrics of the main port.", type=PORT,
          default=9000, note=lambda value: f"nothing listens on {value}, metrics are at /metrics of the main port"),

    Option("--strict-streaming-errors", SERVER, "Penstock: a stream that fails before its first event is answered with "
           "the status of its error, where TGI answers 200 and sends the error as an event.", is_flag=True),
    Option("--tgi-tool-finish-reason", SERVER, "Penstock: an answer with tool calls ends for the reason TGI gives, "
           "stop, instead of OpenAI's tool_calls.", is_flag=True),
    Option("--otlp-endpoint", SERVER, "Where traces are sent, by OTLP over gRPC, such as http://localhost:4317. "
           "Default: there are none."),
    Option("--otlp-service-name", SERVER, "The name they bear.", default="text-generation-inference.router"),

    Option("--api-key", ACCESS, "What requests that cost something must send, as `Authorization: Bearer KEY`. Better "
           "given by its variable, for other users of the machine see command lines.", show_default=False),
    Option("--cors-allow-origin", ACCESS, "Origin whose pages may call the server; can be given more than once. "
           "Default: any.", multiple=True, callback=_origins),
    Option("--ssl-certfile", ACCESS, "Penstock: the server's certificate and those it rests on, a PEM file. With it "
           "and the next the server speaks TLS.", type=click.Path(path_type=Path)),
    Option("--ssl-keyfile", ACCESS, "Penstock: the certificate's private key, a PEM file without a password.",
           type=click.Path(path_type=Path)),

    Option("--num-shard", SHARDS, "Processes that share the model. Default: 1.", type=COUNT),
    Option("--sharded", SHARDS, "true asks for more than one shard.", type=bool),
    Option("--device", SHARDS, "Penstock: what computes. auto is a GPU for each shard where there are GPUs.",
           type=click.Choice(["auto", "cpu", "cuda"]), default="auto"),
    Option("--deterministic", SHARDS, "Penstock: on GPUs, too, no answer changes with the batch, which costs some "
           "speed. On processors none ever does.", is_flag=True),
    Option("--cuda-graphs", SHARDS, "Rows of the decode steps that a GPU runs as one order, such as 1,2,4; larger "
           "steps, and all with 0, run without. Default: 1,2,4,8,16,32,64,96,128,192,256, as far as batches grow.",
           type=Counts()),
    Option("--threads", SHARDS, "Penstock: computing threads of each shard. Default: the processor's cores, shared.",
           type=POSITIVE),
    Option("--step-timeout", SHARDS, "Penstock: seconds after which a step that has not ended, or a shard that does "
           "not answer, is taken for a hang, and the shards are restarted. Must be longer than any real step.",
           type=POSITIVE, default=60),
    Option("--max-shard-downtime", SHARDS, "Penstock: seconds that requests wait for a group that is restarting before "
           "they are answered with 503.", type=COUNT, default=120),
    Option("--shard-uds-path", SHARDS, "Sockets of the shards: PATH-0, PATH-1, … Default: in a private directory."),
    Option("--master-addr", SHARDS, "Address where the shards meet, if a port is given.", default="localhost"),
    Option("--master-port", SHARDS, "Port where the shards meet. Default: they meet at a file in a private directory.",
           type=Integer(1, 2**16 - 1)),

    Option("--json-output", REST, "Log lines are JSON.", is_flag=True),
    Option("--env -e", REST, "Print the software and hardware found, then start.", is_flag=True, envvar=None),
    Noted("--usage-stats", REST, "Accepted; nothing is ever sent.", type=click.Choice(["on", "off", "no-stack"]),
          default="off", note=_no_statistics),

    Unsupported("--quantize"),
    Unsupported("--speculate", 0, type=COUNT),
    Unsupported("--trust-remote-code", False, is_flag=True),
    Unsupported("--disable-custom-kernels", False, is_flag=True),
    Unsupported("--weights-cache-override"),
    Unsupported("--lora-adapters"),
    Unsupported("--rope-scaling"),
    Unsupported("--rope-factor", type=float),
    Unsupported("--ngrok", False, is_flag=True),
    Unsupported("--ngrok-authtoken"),
    Unsupported("--ngrok-edge"),
]
