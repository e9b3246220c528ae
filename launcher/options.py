"""Defines every option of the launcher, with its names, environment variable, default and help.

Names, variables (the name in capitals) and defaults are those of TGI's launcher; a command line or manifest made for
it is either obeyed or refused with a sentence, never half understood. What only we have is marked "Penstock:".
"""

import ipaddress
import re
import socket
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from penstock.launcher import otel
from penstock.launcher.adapters import AdapterList
from penstock.launcher.option_types import (
    COUNT,
    OTHER,
    PORT,
    POSITIVE,
    U32,
    ByteSize,
    Counts,
    Integer,
    Line,
    Noted,
    Number,
    Option,
    Unsupported,
    note,
)
from penstock.router.fleet import groups_spec
from penstock.router.fleet.groups_spec import GroupsSpec
from penstock.system import wire_tls
from penstock.system.arguments import InvalidArgument


def _hostname(context: click.Context, option: click.Parameter, value: str) -> str:
    """Returns an IP address. A container's own name in HOSTNAME must not keep the server from starting, and since every
    container has it there, is not worth a word."""
    address = "127.0.0.1" if value == "localhost" else value
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        if option.name and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise InvalidArgument(f"`hostname` must be an IP address or localhost, not {value!r}") from None
        if value != socket.gethostname():
            note(context, f"Invalid hostname {value!r} in HOSTNAME, defaulting to 0.0.0.0")
        return "0.0.0.0"


def _origins(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Raises InvalidArgument for a value that no browser sends as `Origin` and that is not `*`."""
    for origin in value:
        if origin not in ("*", "null") and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/,]+", origin):
            raise InvalidArgument("`cors_allow_origin` must be an origin such as https://example.org, or *; several "
                                  f"are given by as many options, or with spaces in the variable. Given: {origin!r}")
    return value


def _groups(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Raises InvalidArgument for a value that names no groups, or a file that can't be read."""
    if not value:
        return None
    try:
        spec = GroupsSpec.parse(value)
        if spec.file is not None:
            groups_spec.read(spec.file)
    except ValueError as error:
        raise InvalidArgument(f"`groups`: {error}") from error
    except OSError as error:
        raise InvalidArgument(f"`groups`: cannot read {spec.file}: {error.strerror}") from error
    return value


def _no_statistics(value: str) -> str | None:
    return None if value == "off" else "there are no usage statistics, nothing is sent"


class Quantization(click.Choice[str]):
    """The formats to which weights may be quantised. TGI's one value that nothing here can read is refused with a
    reason."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == NO_QUANTIZATION:
            raise InvalidArgument(f"`quantize` {value}: its files need kernels for GPUs that this server does not "
                                  "have; a GPTQ, AWQ, compressed-tensors or GGUF file of the same model can be served")
        return super().convert(value, param, ctx)


QUANTIZATIONS = ("awq", "compressed-tensors", "eetq", "gptq", "marlin", "bitsandbytes", "bitsandbytes-nf4",
                 "bitsandbytes-fp4", "fp8", "mxfp4", "int8", "int4")
NO_QUANTIZATION = "exl2"
MODEL, MEMORY, LIMITS = "Model", "Memory and batches", "Limits of a request"
SERVER, ACCESS, SHARDS, REST = "Server", "Access", "Shards", OTHER

OPTIONS: list[click.Parameter] = [
    Option("--model-id", MODEL, "A directory with a checkpoint, a GGUF file, or a name on the Hugging Face Hub, "
           "where NAME/FILE.gguf is one of its GGUF files. Required."),
    Option("--revision", MODEL, "Branch, tag or commit on the Hub."),
    Option("--dtype", MODEL, "Number format of weights and activations. Default: the checkpoint's own. "
           "float32 is Penstock's addition.", type=click.Choice(["float16", "bfloat16", "float32"])),
    Option("--quantize", MODEL, "How the weights are quantised. Default: as the checkpoint is. awq, gptq, marlin, "
           "compressed-tensors, fp8 and mxfp4 say what a checkpoint is; so do the three of bitsandbytes, which else "
           "round plain weights when they are loaded, as do eetq and, in Penstock, int8 and int4.",
           type=Quantization(QUANTIZATIONS)),
    Option("--activations", MODEL, "Penstock: what quantised linears multiply with: inputs in 8 bits, or as they are. "
           "Default: int8 for weights that are whole numbers, and bf16 for others.",
           type=click.Choice(["int8", "bf16"])),
    Option("--model-impl", MODEL, "Penstock: who computes the model: its own decoder (native), transformers' classes "
           "with its ops in them (transformers), or auto: native where the architecture is. Default: auto.",
           type=click.Choice(["auto", "native", "transformers"])),
    Option("--rope-scaling", MODEL, "How rotary embeddings are scaled, by --rope-factor. Default: as the checkpoint "
           "says. dynamic changes nothing up to the checkpoint's context, where sequences end.",
           type=click.Choice(["linear", "dynamic"])),
    Option("--rope-factor", MODEL, "The factor of that scaling, which is linear if only the factor is given. Default: "
           "1.0.", type=Number(0, min_open=True)),
    Option("--huggingface-hub-cache", MODEL, "Directory of downloaded checkpoints.",
           type=click.Path(file_okay=False, path_type=Path)),
    Option("--lora-adapters", MODEL, "Adapters (LoRA) that requests may name, with commas between them: NAME=PLACE, or "
           "PLACE alone, which is its name, too. PLACE is a directory or a name on the Hub, and may end with "
           "@REVISION.", type=AdapterList()),
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
    Option("--max-adapter-memory", MEMORY, "Penstock: memory of all adapters that are loaded at once, such as 512MiB, "
           "counted in the model's number format, with ranks padded to 16, before they are cut for the shards; others "
           "wait until one is not in use.", type=ByteSize(), default="1GiB"),
    Option("--max-batch-prefill-tokens", MEMORY, "Tokens that one step computes at most. Default: what runs in about "
           "250 ms, by the latest steps, from 64 to 4096.", type=Integer(1, 2**32 - 1)),
    Option("--max-batch-total-tokens", MEMORY, "Tokens whose keys and values are held at once, at most. "
           "Default: what the memory holds.", type=Integer(1, 2**32 - 1)),
    Option("--max-batch-size", MEMORY, "Sequences that run at once, at most.", type=COUNT),
    Option("--pipeline-depth", MEMORY, "Penstock: steps in flight at once; 1 waits for each step before it plans the "
           "next. Default: 2, or as many as there are stages.", type=POSITIVE),
    Option("--speculate", MEMORY, "Tokens that a step guesses of each sequence and verifies, at most: those that a "
           "grammar forces, those that followed the last tokens before, or those that a draft model proposes. Fewer "
           "are guessed where it does not pay. No answer depends on it where none "
           "depends on its batch. Default: 0.", type=Integer(0, 64)),
    Option("--draft-model-id", MEMORY, "Penstock: a smaller model with the same tokens that proposes what --speculate "
           "verifies: a directory, or a name on the Hugging Face Hub. Its keys and values have a part of the KV "
           "memory."),
    Noted("--waiting-served-ratio", MEMORY, "Accepted without effect, since prefill is chunked.", type=float,
          default=0.3, note=lambda value: f"{value} has no effect, since prefill is chunked"),
    Noted("--max-waiting-tokens", MEMORY, "Accepted without effect, since prefill is chunked.", type=COUNT,
          default=20, note=lambda value: f"{value} has no effect, since prefill is chunked"),

    Option("--max-input-tokens", LIMITS, "Tokens that a prompt may have. Default: --max-total-tokens - 1.",
           type=POSITIVE),
    Option("--max-input-length", LIMITS, "Old name of --max-input-tokens.", type=POSITIVE),
    Option("--max-total-tokens", LIMITS, "Tokens that a prompt and its answer may have together. "
           "Default: the model's context, or 7/8 of the KV memory if that is less.", type=POSITIVE),
    Option("--max-concurrent-requests", LIMITS, "Requests that the server takes at once; it answers more with 429.",
           type=POSITIVE, default=128),
    Option("--max-best-of", LIMITS, "Candidates that a request may have generated, of which the best is returned.",
           type=COUNT, default=2),
    Option("--max-stop-sequences", LIMITS, "Stop strings that a request may have.", type=COUNT, default=4),
    Option("--max-top-n-tokens", LIMITS, "Likeliest tokens that a request may have reported at each position.",
           type=U32, default=5),
    Option("--max-client-batch-size", LIMITS, "Prompts that a request may have.", type=COUNT, default=4),
    Option("--payload-limit", LIMITS, "Bytes that a request's body may have.", type=COUNT, default=2_000_000),
    Option("--enable-prefill-logprobs", LIMITS, "Compute the logprobs of prompts for requests that want them.",
           is_flag=True),
    Option("--disable-grammar-support", LIMITS, "Refuse requests for structured output.", is_flag=True),

    Option("--hostname", SERVER, "IP address to listen on. A HOSTNAME that is no IP address counts as 0.0.0.0.",
           default="0.0.0.0", callback=_hostname),
    Option("--port -p", SERVER, "Port to listen on.", type=PORT, default=3000, envvar=["AIP_HTTP_PORT", "PORT"]),
    Option("--grpc-port", SERVER, "Penstock: port of the gRPC API. Default: the gRPC API is off.",
           type=Integer(1, 2**16 - 1)),
    Option("--validation-workers", SERVER, "Threads that tokenise.", type=COUNT, default=2),
    Option("--api-workers", SERVER, "Penstock: processes that answer clients, beside one with the engine; with 1, the "
           "one process of the router does both. More are of use where shards make more than about 20,000 tokens a "
           "second.", type=POSITIVE, default=1),
    Option("--graceful-termination-timeout -g", SERVER, "Seconds that running requests get to finish after SIGTERM.",
           type=COUNT, default=90),
    Noted("--prometheus-port", SERVER, "Accepted without effect: metrics are at /metrics.", type=PORT,
          default=9000, note=lambda value: f"nothing listens on {value}, metrics are at /metrics of the main port"),

    Option("--strict-streaming-errors", SERVER, "Penstock: a stream that fails before its first event is answered with "
           "the status of its error, where TGI answers 200 and sends the error as an event.", is_flag=True),
    Option("--tgi-openai-routes", SERVER, "Penstock: OpenAI's routes answer as TGI's do, where those differ from "
           "OpenAI's: in errors and their statuses, ids, finish reasons and what is null.", is_flag=True),
    Option("--vllm-metrics", SERVER, "Penstock: /metrics tells series once more under vLLM's names, such as "
           "vllm:num_requests_waiting, for autoscalers and gateways that ask for these.", is_flag=True),
    Option("--otlp-endpoint", SERVER, "Collector that traces are sent to, by OTLP over gRPC, such as "
           "http://localhost:4317. Default: OpenTelemetry's OTEL_EXPORTER_OTLP_ENDPOINT; without it nothing is traced.",
           callback=otel.endpoint),
    Option("--otlp-service-name", SERVER, "Name of the service in the traces, for which OTEL_SERVICE_NAME stands, too.",
           default="text-generation-inference.router", callback=otel.service_name),

    Option("--api-key", ACCESS, "Key that clients must send, as `Authorization: Bearer KEY`, to generate and to "
           "tokenise; can be given more than once, in the variable one a line. Give it there or in a file, since other "
           "users of the machine can see command lines.", type=Line(), multiple=True, show_default=False),
    Option("--api-key-file", ACCESS, "Penstock: file of more such keys, one a line. SIGHUP has it read again.",
           type=click.Path(dir_okay=False, path_type=Path)),
    Option("--metrics-key", ACCESS, "Penstock: key that clients must send for /metrics, /info and /docs; an API key "
           "will do, too. Can be given more than once. Default: these routes need no key.",
           type=Line(), multiple=True, show_default=False),
    Option("--allow-runtime-adapters", ACCESS, "Penstock: let clients load and unload adapters, from directories of "
           "the server, by vLLM's /v1/load_lora_adapter and /v1/unload_lora_adapter. Needs an API key.", is_flag=True),
    Option("--cors-allow-origin", ACCESS, "Origin whose pages may call the server; can be given more than once. "
           "Default: any.", multiple=True, callback=_origins),
    Option("--ssl-certfile", ACCESS, "Penstock: PEM file of the server's certificate and its chain. With it and "
           "--ssl-keyfile the server speaks TLS.", type=click.Path(path_type=Path)),
    Option("--ssl-keyfile", ACCESS, "Penstock: PEM file of the certificate's private key, without a password.",
           type=click.Path(path_type=Path)),

    Option("--num-shard", SHARDS, "Processes that share the model. Default: 1.", type=COUNT),
    Option("--pipeline-parallel-size", SHARDS, "Penstock: stages that the layers are cut into, each on an equal part "
           "of the shards. Shards of a stage split each of its layers, and exchange far more than stages do.",
           type=POSITIVE, default=1),
    Option("--sharded", SHARDS, "Whether the model is shared; true requires a --num-shard above 1.", type=bool),
    Option("--device", SHARDS, "Penstock: device to compute on. auto means a GPU for each shard if there are GPUs.",
           type=click.Choice(["auto", "cpu", "cuda"]), default="auto"),
    Option("--deterministic", SHARDS, "Penstock: use kernels with which no answer changes with the batch on GPUs "
           "either, which costs some speed. On processors none ever does.", is_flag=True),
    Option("--cuda-graphs", SHARDS, "Sizes, in rows, of the decode steps that are captured as CUDA graphs, such as "
           "1,2,4. Default: 1,2,4,8,16,32,64,96,128,192,256, as far as batches can grow. Beside them steps with parts "
           "of prompts are captured, of up to 512 tokens; with 0 none of all is.",
           type=Counts()),
    Option("--threads", SHARDS, "Penstock: threads that compute in each shard. Default: its share of the cores.",
           type=POSITIVE),
    Option("--step-timeout", SHARDS, "Penstock: seconds after which a step that has not ended, or a process that "
           "does not answer, counts as hanging, and is restarted; the router after at least 5. Must be longer than the "
           "longest step.",
           type=POSITIVE, default=60),
    Option("--max-shard-downtime", SHARDS, "Penstock: seconds that requests wait for shards that are being restarted "
           "before they are answered with 503; the time while shards make progress in loading does not count.",
           type=COUNT, default=120),
    Option("--startup-timeout", SHARDS, "Penstock: seconds after which shards that load and make no progress are "
           "started again.", type=POSITIVE, default=120),
    Option("--poison-memory", SHARDS, "Penstock: seconds for which a request that killed the shards whenever they ran "
           "it is refused with 424 when it is sent again; 0 refuses none.", type=COUNT, default=600),
    Option("--shard-uds-path", SHARDS, "Folder of the shards' sockets, which nobody else may enter; it is made if "
           "there is none. Default: a temporary one.", type=click.Path(path_type=Path)),
    Option("--groups", SHARDS, "Penstock: groups that run elsewhere, by `penstock group`, and no shards of its own: "
           "HOST:PORT,HOST:PORT, or dns:NAME:PORT for all addresses of a name, or a YAML file with a list `groups` of "
           "HOST:PORT. The shards of a group on several machines have an address on each.",
           envvar="PENSTOCK_GROUPS",  # bash keeps GROUPS to itself
           callback=_groups),
    Option("--shard-tls-ca", SHARDS, "Penstock: PEM file of the CA that signs the certificates of routers and shards, "
           "which prove to one another who they are. Needed for shards that are not on this machine.",
           type=click.Path(path_type=Path)),
    Option("--shard-tls-cert", SHARDS, "Penstock: PEM file of this process's certificate for that, signed by the CA.",
           type=click.Path(path_type=Path)),
    Option("--shard-tls-key", SHARDS, "Penstock: PEM file of the certificate's private key, without a password.",
           type=click.Path(path_type=Path)),
    Option("--shard-tls-name", SHARDS, "Penstock: DNS name that these certificates bear, the same on all.",
           default=wire_tls.NAME),
    Option("--master-addr", SHARDS, "Address where the shards meet, if --master-port is given.", default="localhost"),
    Option("--master-port", SHARDS, "Port where the shards meet. Default: they meet at a file in a private directory.",
           type=Integer(1, 2**16 - 1)),

    Option("--json-output", REST, "Write log lines as JSON.", is_flag=True),
    Option("--no-request-logs", REST, "Penstock: write no line in the log for each request.", is_flag=True),
    Option("--env -e", REST, "Print the software and hardware found, then start.", is_flag=True, envvar=None),
    Noted("--usage-stats", REST, "Accepted without effect: nothing is sent.",
          type=click.Choice(["on", "off", "no-stack"]), default="off", note=_no_statistics),

    Unsupported("--trust-remote-code", False, is_flag=True),
    Unsupported("--disable-custom-kernels", False, is_flag=True),
    Unsupported("--weights-cache-override"),
    Unsupported("--ngrok", False, is_flag=True),
    Unsupported("--ngrok-authtoken"),
    Unsupported("--ngrok-edge"),
]
