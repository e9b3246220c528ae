"""Every setting of a server, declared once: the command line, the pages about it and what each process is told are made
of this table.

Names, variables (the name in capitals) and defaults are those of TGI's launcher; a command line or manifest made for
it is either obeyed or refused with a sentence, never half understood. What only we have is marked "Penstock:".
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import click
from annotated_types import Ge, Gt, Le, Lt
from pydantic import NonNegativeInt, PositiveInt

from penstock.system import wire_tls
from penstock.system.setting import (
    AdapterList,
    AskedAdapter,
    ByteSize,
    Counts,
    Duration,
    Line,
    Quantization,
    Setting,
    Who,
    settings,
)
from penstock.system.wire_tls import WireTls

MODEL, SEVERAL, MEMORY, LIMITS = "Model", "Several models", "Memory and batches", "Limits of a request"
SERVER, ACCESS, SHARDS, REST = "Server", "Access", "Shards", "Other"

LAUNCHER, ROUTER, SHARD, GROUP = Who.LAUNCHER, Who.ROUTER, Who.SHARD, Who.GROUP
OF_SHARDS = Who.GROUP | Who.NO_ROUTER
ALIKE = SHARD | OF_SHARDS | Who.ALIKE
POOLINGS = {"cls": "cls", "mean": "mean", "splade": "splade", "last-token": "lasttoken", "max": "max",
            "mean-sqrt-len": "mean_sqrt_len_tokens", "weighted-mean": "weightedmean"}
"""The poolings by the names of the option; the first four are TEI's."""
Tokens = Annotated[int, Ge(1), Le(2**32 - 1)]
Port = Annotated[int, Ge(0), Le(2**16 - 1)]
OtherPort = Annotated[int, Ge(1), Le(2**16 - 1)]
File = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """The settings that a user gives, by the command line or by environment variables. All processes have them: those
    that a process is not told are at their defaults there. None stands for what follows from the model, its memory and
    the machine. The order is that of the help page."""

    model_id: Annotated[str, Setting(
        MODEL, "A directory with a checkpoint, a GGUF file, or a name on the Hugging Face Hub, where NAME/FILE.gguf is "
        "one of its GGUF files. Required. Several are each given as NAME=PLACE.", ROUTER | SHARD)] = ""
    revision: Annotated[str | None, Setting(MODEL, "Branch, tag or commit on the Hub.", GROUP)] = None
    dtype: Annotated[Literal["float16", "bfloat16", "float32"] | None, Setting(
        MODEL, "Number format of weights and activations. Default: the checkpoint's own. float32 is Penstock's "
        "addition.", ALIKE)] = None
    quantize: Annotated[str | None, Setting(
        MODEL, "How the weights are quantised. Default: as the checkpoint is. awq, gptq, marlin, compressed-tensors, "
        "fp8 and mxfp4 say what a checkpoint is; so do the three of bitsandbytes, which else round plain weights when "
        "they are loaded, as do eetq and, in Penstock, int8 and int4.", ALIKE, type=Quantization())] = None
    activations: Annotated[Literal["int8", "bf16"] | None, Setting(
        MODEL, "Penstock: what quantised linears multiply with: inputs in 8 bits, or as they are. Default: int8 for "
        "weights that are whole numbers, and bf16 for others.", ALIKE)] = None
    model_impl: Annotated[Literal["auto", "native", "transformers"], Setting(
        MODEL, "Penstock: who computes the model: its own decoder (native), transformers' classes with its ops in them "
        "(transformers), or auto: native where the architecture is. Default: auto.", ALIKE)] = "auto"
    rope_scaling: Annotated[Literal["linear", "dynamic"] | None, Setting(
        MODEL, "How rotary embeddings are scaled, by --rope-factor. Default: as the checkpoint says. dynamic changes "
        "nothing up to the checkpoint's context, where sequences end.", ALIKE)] = None
    rope_factor: Annotated[Annotated[float, Gt(0)] | None, Setting(
        MODEL, "The factor of that scaling, which is linear if only the factor is given. Default: 1.0.",
        ALIKE)] = None
    huggingface_hub_cache: Annotated[Path | None, Setting(
        MODEL, "Directory of downloaded checkpoints.", GROUP, type=click.Path(file_okay=False, path_type=Path))] = None
    lora_adapters: Annotated[tuple[AskedAdapter, ...], Setting(
        MODEL, "Adapters (LoRA) that requests may name, with commas between them: NAME=PLACE, or PLACE alone, which is "
        "its name, too. PLACE is a directory or a name on the Hub, and may end with @REVISION.", LAUNCHER,
        type=AdapterList())] = ()
    tokenizer_config_path: Annotated[Path | None, Setting(
        MODEL, "The file whose chat template is used instead of the checkpoint's.",
        type=click.Path(exists=True, dir_okay=False, path_type=Path))] = None
    tool_call_parser: Annotated[Literal[
        "auto", "deepseek_v32", "deepseek_v4", "deepseek_v3", "deepseek_v31", "kimi_k2", "solar_open", "minimax_m2",
        "seed_oss", "qwen3_coder", "qwen3_xml", "step3p5", "nemotron_v3", "hunyuan_v3", "glm47", "glm45", "mistral",
        "hermes", "qwen25", "ernie45", "granite4", "longcat", "gigachat3", "phi4_mini_json", "granite", "cohere",
        "cohere_command3", "cohere_command4", "command_r", "minimax_m1", "minimax", "jamba", "hunyuan_a13b",
        "apriel", "nemotron", "internlm", "internlm2", "apertus", "functionary", "functionary_v3_2", "lfm2",
        "olmo3", "pythonic", "llama4_pythonic", "llama_pythonic", "xlam", "llama", "llama3_json",
        "llama4_json"], Setting(
        MODEL, "Penstock: how the model writes calls of tools, by the names of vLLM's parsers. auto asks the chat "
        "template. Default: auto.")] = "auto"
    reasoning_parser: Annotated[Literal[
        "auto", "none", "openai_gptoss", "gpt_oss", "harmony", "seed_oss", "minimax_m3", "cohere", "cohere_command3",
        "cohere_command4", "command_a", "mistral", "magistral", "kimi", "apertus", "hunyuan_v3", "granite",
        "hunyuan_a13b", "ernie45", "granite33", "gemma4", "deepseek_r1", "deepseek_v3", "qwen3", "glm45", "kimi_k2",
        "minimax_m2", "nemotron", "nemotron_v3", "step3", "step3p5", "holo2", "olmo3", "ernie45_think",
        "think"], Setting(
        MODEL, "Penstock: how the model marks the text in which it thinks before it answers, by the names of vLLM's "
        "parsers. auto asks the chat template, none tells no thoughts apart. Default: auto.")] = "auto"
    task: Annotated[Literal["auto", "generate", "embed", "classify", "rerank"], Setting(
        MODEL, "Penstock: what the model is for: text, vectors of texts, scores of their classes or of how well they "
        "fit a query. auto asks the checkpoint's files. Default: auto.", ALIKE)] = "auto"
    pooling: Annotated[Literal["cls", "mean", "splade", "last-token", "max", "mean-sqrt-len", "weighted-mean"] | None,
        Setting(
        MODEL, "TEI's: how the vectors of a text's tokens become one; max, mean-sqrt-len and weighted-mean are "
        "Penstock's. Default: as the checkpoint says.", ALIKE)] = None
    default_prompt_name: Annotated[str | None, Setting(
        MODEL, "TEI's: which of the checkpoint's prompts stands before each text that a vector is made of, unless the "
        "request names one. Default: the one that the checkpoint names, if it does.")] = None
    default_prompt: Annotated[str | None, Setting(
        MODEL, "TEI's: the text that stands there, in place of one of the checkpoint's.")] = None
    watermark_gamma: Annotated[Annotated[float, Gt(0), Lt(1)], Setting(
        MODEL, "Share of the vocabulary that a watermark prefers. Default: 0.5.", SHARD | OF_SHARDS)] = 0.5
    watermark_delta: Annotated[float, Setting(
        MODEL, "How much a watermark prefers it, in logits. Default: 2.0.", SHARD | OF_SHARDS)] = 2.0

    models: Annotated[Path | None, Setting(
        SEVERAL, "Penstock: YAML file of several models, each with a name and settings of its own, and of aliases. The "
        "first is always loaded, and answers requests that name no model.", LAUNCHER, type=File)] = None
    model_repository: Annotated[Path | None, Setting(
        SEVERAL, "Penstock: directory with a directory for each of several models, in which a config.yaml may have its "
        "settings and numbered directories its versions.", LAUNCHER,
        type=click.Path(file_okay=False, path_type=Path))] = None
    max_model_memory: Annotated[PositiveInt | None, Setting(
        SEVERAL, "Penstock: memory of all models that are loaded at once, such as 16GiB: their weights' files, and "
        "the --kv-memory of each. The least recently used one leaves for another. Default: no bound.",
        type=ByteSize())] = None
    max_load_wait: Annotated[PositiveInt, Setting(
        SEVERAL, "Penstock: seconds that a request waits for its model to be loaded before it is answered with 503.",
        )] = 120
    model_keep_alive: Annotated[Annotated[float, Ge(0)], Setting(
        SEVERAL, "Penstock: seconds for which a model that was loaded on demand stays without a request, or a time "
        "such as 5m; -1 is for ever.", LAUNCHER, type=Duration())] = 300
    keep_weights: Annotated[PositiveInt | None, Setting(
        SEVERAL, "Penstock: memory, such as 8GiB, in which the shards of unloaded models keep the weights for a short "
        "next load; the least recently used leave. It comes beside --max-model-memory. Default: none.",
        LAUNCHER, type=ByteSize())] = None

    kv_memory: Annotated[PositiveInt | None, Setting(
        MEMORY, "Penstock: memory of each shard for keys and values, such as 4GiB. Default: what the model leaves of a "
        "GPU's memory; on a processor a share of what is free.", SHARD | OF_SHARDS, type=ByteSize())] = None
    kv_cache_dtype: Annotated[Literal["fp8_e4m3fn", "fp8_e5m2", "int8"] | None, Setting(
        MEMORY, "Number format of keys and values. Default: that of the weights. int8 is Penstock's addition, and what "
        "a processor has of the three.", ALIKE)] = None
    cuda_memory_fraction: Annotated[Annotated[float, Gt(0), Le(1)], Setting(
        MEMORY, "Share of each GPU's memory that may be used.", SHARD | OF_SHARDS)] = 1.0
    block_size: Annotated[PositiveInt, Setting(
        MEMORY, "Penstock: tokens in a block of that memory. Default: 16.", ALIKE)] = 16
    max_adapter_memory: Annotated[int, Setting(
        MEMORY, "Penstock: memory of all adapters that are loaded at once, such as 512MiB, counted in the model's "
        "number format, with ranks padded to 16, before they are cut for the shards; others wait until one is not in "
        "use.", ROUTER | GROUP, type=ByteSize(), default="1GiB")] = 1 << 30
    max_batch_prefill_tokens: Annotated[Tokens | None, Setting(
        MEMORY, "Tokens that one step computes at most. Default: what runs in about 250 ms, by the latest steps, from "
        "64 to 4096.", ROUTER | GROUP)] = None
    max_batch_tokens: Annotated[Tokens | None, Setting(
        MEMORY, "TEI's name of --max-batch-prefill-tokens.", LAUNCHER)] = None
    max_batch_total_tokens: Annotated[Tokens | None, Setting(
        MEMORY, "Tokens whose keys and values are held at once, at most. Default: what the memory holds.")] = None
    max_batch_size: Annotated[NonNegativeInt | None, Setting(
        MEMORY, "Sequences that run at once, at most.", ROUTER | GROUP)] = None
    max_batch_requests: Annotated[PositiveInt | None, Setting(
        MEMORY, "TEI's name of --max-batch-size.", LAUNCHER)] = None
    pipeline_depth: Annotated[PositiveInt | None, Setting(
        MEMORY, "Penstock: steps in flight at once; 1 waits for each step before it plans the next. Default: 2, or as "
        "many as there are stages.")] = None
    speculate: Annotated[Annotated[int, Ge(0), Le(64)], Setting(
        MEMORY, "Tokens that a step guesses of each sequence and verifies, at most: those that a grammar forces, those "
        "that followed the last tokens before, or those that a draft model proposes. Fewer are guessed where it does "
        "not pay. No answer depends on it where none depends on its batch. Default: 0.", ROUTER | SHARD | GROUP)] = 0
    draft_model_id: Annotated[str | None, Setting(
        MEMORY, "Penstock: a smaller model with the same tokens that proposes what --speculate verifies: a directory, "
        "or a name on the Hugging Face Hub. Its keys and values have a part of the KV memory.", OF_SHARDS)] = None

    max_input_tokens: Annotated[PositiveInt | None, Setting(
        LIMITS, "Tokens that a prompt may have. Default: --max-total-tokens - 1.", ROUTER | SHARD)] = None
    max_input_length: Annotated[PositiveInt | None, Setting(
        LIMITS, "Old name of --max-input-tokens.", LAUNCHER)] = None
    max_total_tokens: Annotated[PositiveInt | None, Setting(
        LIMITS, "Tokens that a prompt and its answer may have together. Default: the model's context, or 7/8 of the KV "
        "memory if that is less.", ROUTER | SHARD)] = None
    max_concurrent_requests: Annotated[PositiveInt, Setting(
        LIMITS, "Requests that the server takes at once; it answers more with 429.", ROUTER | GROUP)] = 128
    max_best_of: Annotated[NonNegativeInt, Setting(
        LIMITS, "Candidates that a request may have generated, of which the best is returned.")] = 2
    max_stop_sequences: Annotated[NonNegativeInt, Setting(LIMITS, "Stop strings that a request may have.")] = 4
    max_top_n_tokens: Annotated[Annotated[int, Ge(0), Le(2**32 - 1)], Setting(
        LIMITS, "Likeliest tokens that a request may have reported at each position.")] = 5
    max_client_batch_size: Annotated[NonNegativeInt | None, Setting(
        LIMITS, "Prompts that a request may have. Default: 4, or 2048 texts to make vectors or scores of.")] = None
    auto_truncate: Annotated[bool, Setting(
        LIMITS, "TEI's: cut texts that have too many tokens to make vectors or scores of, unless the request says "
        "otherwise.")] = False
    payload_limit: Annotated[NonNegativeInt, Setting(LIMITS, "Bytes that a request's body may have.")] = 2_000_000
    enable_prefill_logprobs: Annotated[bool, Setting(
        LIMITS, "Compute the logprobs of prompts for requests that want them.")] = False
    disable_grammar_support: Annotated[bool, Setting(LIMITS, "Refuse requests for structured output.")] = False

    hostname: Annotated[str, Setting(
        SERVER, "IP address to listen on. A HOSTNAME that is no IP address counts as 0.0.0.0.")] = "0.0.0.0"
    port: Annotated[Port, Setting(SERVER, "Port to listen on.", short="-p", envvar=["AIP_HTTP_PORT", "PORT"])] = 3000
    grpc_port: Annotated[OtherPort | None, Setting(
        SERVER, "Penstock: port of the gRPC API. Default: the gRPC API is off.")] = None
    validation_workers: Annotated[NonNegativeInt, Setting(SERVER, "Threads that tokenise.")] = 2
    api_workers: Annotated[PositiveInt, Setting(
        SERVER, "Penstock: processes that answer clients, beside one with the engine; with 1, the one process of the "
        "router does both. More are of use where shards make more than about 20,000 tokens a second.")] = 1
    graceful_termination_timeout: Annotated[NonNegativeInt, Setting(
        SERVER, "Seconds that running requests get to finish after SIGTERM.", ROUTER | GROUP, short="-g")] = 90
    strict_streaming_errors: Annotated[bool, Setting(
        SERVER, "Penstock: a stream that fails before its first event is answered with the status of its error, where "
        "TGI answers 200 and sends the error as an event.")] = False
    tgi_openai_routes: Annotated[bool, Setting(
        SERVER, "Penstock: OpenAI's routes answer as TGI's do, where those differ from OpenAI's: in errors and their "
        "statuses, ids, finish reasons and what is null.")] = False
    vllm_metrics: Annotated[bool, Setting(
        SERVER, "Penstock: /metrics tells series once more under vLLM's names, such as vllm:num_requests_waiting, for "
        "autoscalers and gateways that ask for these.")] = False
    triton_metrics: Annotated[bool, Setting(
        SERVER, "Penstock: /metrics tells series once more under Triton's names, such as nv_inference_request_success, "
        "for boards and alerts that ask for these.")] = False
    data_dir: Annotated[Path | None, Setting(
        SERVER, "Penstock: directory in which files, batches and responses are kept, in SQLite; it is made if there is "
        "none. Default: without it and --database-url there are no /v1/files and /v1/batches, and no response is kept.",
        type=click.Path(file_okay=False, path_type=Path))] = None
    database_url: Annotated[str | None, Setting(
        SERVER, "Penstock: PostgreSQL database in which they are kept instead, such as "
        "postgresql://user:password@host/database; several servers may share it. Give it by the variable, since other "
        "users of the machine can see command lines.", envvar="PENSTOCK_DATABASE_URL")] = field(
            default=None, repr=False)
    response_cache: Annotated[str | None, Setting(
        SERVER, "Penstock: where answers are kept for equal requests, if they can be repeated: memory, sqlite (in "
        "--data-dir), postgresql (at --database-url), or a URL of Redis such as redis://host:6379/0. Default: they are "
        "not.")] = field(default=None, repr=False)
    response_cache_size: Annotated[PositiveInt, Setting(
        SERVER, "Penstock: bytes of answers that are kept, such as 1GiB. Default: 256MB.",
        type=ByteSize())] = 256_000_000
    response_cache_age: Annotated[PositiveInt, Setting(
        SERVER, "Penstock: seconds for which an answer is kept.")] = 3600
    response_cache_shared: Annotated[bool, Setting(
        SERVER, "Penstock: give answers that were made for one API key to the clients of all. How fast an answer comes "
        "tells them whether another one has asked the same.")] = False
    request_log: Annotated[str | None, Setting(
        SERVER, "Penstock: where a record of each request is written, by which it can be computed again: a file such "
        "as requests.jsonl, sqlite (in --data-dir) or postgresql (at --database-url). Default: nowhere.")] = None
    request_log_content: Annotated[Literal["hashes", "texts", "none"], Setting(
        SERVER, "Penstock: what records have of prompts and answers: digests of their tokens, texts and tokens, or "
        "nothing.")] = "hashes"
    request_log_redact: Annotated[tuple[str, ...], Setting(
        SERVER, "Penstock: regular expression of what records must not have of texts; can be given more than once, in "
        "the variable one a line.", type=Line(), show_default=False)] = ()
    request_log_sample: Annotated[Annotated[float, Gt(0), Le(1)], Setting(
        SERVER, "Penstock: share of the requests that have a record.")] = 1.0
    request_log_rotate: Annotated[PositiveInt | None, Setting(
        SERVER, "Penstock: bytes, such as 100MB, beyond which the file is renamed by the time, and a new one begun.",
        type=ByteSize())] = None
    receipt_key: Annotated[Path | None, Setting(
        SERVER, "Penstock: private key of Ed25519 in PEM, by which receipts of answers are signed, so that clients can "
        "check who has answered.", type=File)] = None
    prices: Annotated[Path | None, Setting(
        SERVER, "Penstock: YAML file of prices and budgets, by which the use of each key is priced, added up and "
        "bounded. SIGHUP has it read again. Needs --data-dir or --database-url, where totals are kept.",
        type=File)] = None
    explained_requests: Annotated[NonNegativeInt, Setting(
        SERVER, "Penstock: requests whose time /explain tells of, the latest that have ended; 0 for none.")] = 1000
    output_checks: Annotated[Path | None, Setting(
        SERVER, "Penstock: YAML file of checks that each answer must pass before its client gets it: patterns, words, "
        "a JSON schema, Python functions. An answer that fails is made anew, or refused with 422.", type=File)] = None
    otlp_endpoint: Annotated[str | None, Setting(
        SERVER, "Collector that traces are sent to, by OTLP over gRPC, such as http://localhost:4317. Default: "
        "OpenTelemetry's OTEL_EXPORTER_OTLP_ENDPOINT; without it nothing is traced.", ROUTER | SHARD | GROUP)] = None
    otlp_service_name: Annotated[str, Setting(
        SERVER, "Name of the service in the traces, for which OTEL_SERVICE_NAME stands, too.",
        ROUTER | SHARD | GROUP)] = "text-generation-inference.router"

    api_key: Annotated[tuple[str, ...], Setting(
        ACCESS, "Key that clients must send, as `Authorization: Bearer KEY` or `x-api-key: KEY`, to generate and to "
        "tokenise; can be given more than once, in the variable one a line. Give it there or in a file, since other "
        "users of the machine can see command lines.", type=Line(), show_default=False)] = field(default=(), repr=False)
    api_key_file: Annotated[Path | None, Setting(
        ACCESS, "Penstock: file of more such keys, one a line. SIGHUP has it read again.", type=File)] = None
    metrics_key: Annotated[tuple[str, ...], Setting(
        ACCESS, "Penstock: key that clients must send for /metrics, /info and /docs; an API key will do, too. It shows "
        "the /v1/usage of all keys. Can be given more than once. Default: these routes need no key.",
        type=Line(), show_default=False,
        )] = field(default=(), repr=False)
    allow_runtime_adapters: Annotated[bool, Setting(
        ACCESS, "Penstock: let clients load and unload adapters, from directories of the server, by vLLM's "
        "/v1/load_lora_adapter and /v1/unload_lora_adapter. Needs an API key.")] = False
    allow_priorities: Annotated[bool, Setting(
        ACCESS, "Penstock: let clients come before others, by a `priority` below 0 or the `service_tier` priority. "
        "Without it they can only ask to come later.")] = False
    trust_request_chat_template: Annotated[bool, Setting(
        ACCESS, "Penstock: take chat templates that clients send as `chat_template`. They run in a sandbox, in "
        "processes of their own. Without it a request can only name one of the model's.")] = False
    cors_allow_origin: Annotated[tuple[str, ...], Setting(
        ACCESS, "Origin whose pages may call the server; can be given more than once. Default: any.")] = ()
    ssl_certfile: Annotated[Path | None, Setting(
        ACCESS, "Penstock: PEM file of the server's certificate and its chain. With it and --ssl-keyfile the server "
        "speaks TLS.")] = None
    ssl_keyfile: Annotated[Path | None, Setting(
        ACCESS, "Penstock: PEM file of the certificate's private key, without a password.")] = None

    num_shard: Annotated[NonNegativeInt, Setting(
        SHARDS, "Processes that share the model. Default: 1.", OF_SHARDS)] = 1
    pipeline_parallel_size: Annotated[PositiveInt, Setting(
        SHARDS, "Penstock: stages that the layers are cut into, each on an equal part of the shards. Shards of a stage "
        "split each of its layers, and exchange far more than stages do.", ALIKE)] = 1
    sharded: Annotated[bool | None, Setting(
        SHARDS, "Whether the model is shared; true requires a --num-shard above 1.", OF_SHARDS)] = None
    device: Annotated[Literal["auto", "cpu", "cuda"], Setting(
        SHARDS, "Penstock: device to compute on. auto means a GPU for each shard if there are GPUs.",
        ALIKE)] = "auto"
    deterministic: Annotated[bool, Setting(
        SHARDS, "Penstock: use kernels with which no answer changes with the batch on GPUs either, which costs some "
        "speed. On processors none ever does.", ALIKE)] = False
    cuda_graphs: Annotated[tuple[NonNegativeInt, ...] | None, Setting(
        SHARDS, "Sizes, in rows, of the decode steps that are captured as CUDA graphs, such as 1,2,4. Default: "
        "1,2,4,8,16,32,64,96,128,192,256, as far as batches can grow. Beside them steps with parts of prompts are "
        "captured, of up to 512 tokens; with 0 none of all is.", SHARD | OF_SHARDS, type=Counts())] = None
    threads: Annotated[PositiveInt | None, Setting(
        SHARDS, "Penstock: threads that compute in each shard. Default: its share of the cores.",
        SHARD | OF_SHARDS)] = None
    step_timeout: Annotated[PositiveInt, Setting(
        SHARDS, "Penstock: seconds after which a step that has not ended, or a process that does not answer, counts as "
        "hanging, and is restarted; the router after at least 5. Must be longer than the longest step.",
        ROUTER | GROUP)] = 60
    max_shard_downtime: Annotated[NonNegativeInt, Setting(
        SHARDS, "Penstock: seconds that requests wait for shards that are being restarted before they are answered "
        "with 503; the time while shards make progress in loading does not count.")] = 120
    startup_timeout: Annotated[PositiveInt, Setting(
        SHARDS, "Penstock: seconds after which shards that load and make no progress are started again.", GROUP)] = 120
    poison_memory: Annotated[NonNegativeInt, Setting(
        SHARDS, "Penstock: seconds for which a request that killed the shards whenever they ran it is refused with 424 "
        "when it is sent again; 0 refuses none.")] = 600
    shard_uds_path: Annotated[Path | None, Setting(
        SHARDS, "Folder of the shards' sockets, which nobody else may enter; it is made if there is none. Default: a "
        "temporary one.", LAUNCHER)] = None
    groups: Annotated[str | None, Setting(
        SHARDS, "Penstock: groups that run elsewhere, by `penstock group`, and no shards of its own: "
        "HOST:PORT,HOST:PORT, or dns:NAME:PORT for all addresses of a name, or a YAML file with a list `groups` of "
        "HOST:PORT. The shards of a group on several machines have an address on each.",
        envvar="PENSTOCK_GROUPS")] = None  # bash keeps GROUPS to itself
    shard_tls_ca: Annotated[Path | None, Setting(
        SHARDS, "Penstock: PEM file of the CA that signs the certificates of routers and shards, which prove to one "
        "another who they are. Needed for shards that are not on this machine.", ROUTER | SHARD | GROUP)] = None
    shard_tls_cert: Annotated[Path | None, Setting(
        SHARDS, "Penstock: PEM file of this process's certificate for that, signed by the CA.",
        ROUTER | SHARD | GROUP)] = None
    shard_tls_key: Annotated[Path | None, Setting(
        SHARDS, "Penstock: PEM file of the certificate's private key, without a password.",
        ROUTER | SHARD | GROUP)] = None
    shard_tls_name: Annotated[str, Setting(
        SHARDS, "Penstock: DNS name that these certificates bear, the same on all.",
        ROUTER | SHARD | GROUP)] = wire_tls.NAME
    master_addr: Annotated[str, Setting(
        SHARDS, "Address where the shards meet, if --master-port is given.", OF_SHARDS)] = "localhost"
    master_port: Annotated[OtherPort | None, Setting(
        SHARDS, "Port where the shards meet. Default: they meet at a file in a private directory.", OF_SHARDS)] = None

    json_output: Annotated[bool, Setting(REST, "Write log lines as JSON.", ROUTER | SHARD | GROUP)] = False
    no_request_logs: Annotated[bool, Setting(
        REST, "Penstock: write no line in the log for each request.")] = False
    env: Annotated[bool, Setting(
        REST, "Print the software and hardware found, then start.", GROUP, short="-e", envvar=None)] = False

    @property
    def shard_tls(self) -> WireTls | None:
        """The TLS of the connections to shards, if they have it. Raises ValueError if files are missing."""
        try:
            return WireTls.of((self.shard_tls_ca, self.shard_tls_cert, self.shard_tls_key), self.shard_tls_name)
        except ValueError:
            raise ValueError("`shard_tls_ca`, `shard_tls_cert` and `shard_tls_key` must be given together") from None


def told_to(who: Who, config: ServerSettings) -> dict[str, Any]:
    """Returns the settings, by their names, that a process of a kind is told."""
    return {each.name: getattr(config, each.name) for each, said, _ in settings(type(config)) if who in said.who}
