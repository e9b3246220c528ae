"""The one definition of every option of the launcher: names, environment variables, defaults, help.

Names, variables (the name in capitals) and defaults are those of TGI's launcher; a command line or manifest made for
it is either obeyed or refused with a sentence, never half understood. What only we have is marked "Penstock:".
"""

import ipaddress
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from router.config import InvalidArgument

NOTES = "penstock.notes"
"""Key of `click.Context.meta`: sentences to log once logging is set up."""


class Integer(click.IntRange):
    """An integer between bounds, called so in messages."""

    name = "integer"


COUNT, POSITIVE = Integer(min=0), Integer(min=1)
U32, PORT = Integer(0, 2**32 - 1), Integer(0, 2**16 - 1)


class Option(click.Option):
    """An option in a group of the help page, with an environment variable of the same name in capitals."""

    def __init__(self, names: str, group: str, help: str, **attributes: Any) -> None:
        variable = names.split()[0].removeprefix("--").replace("-", "_").upper()
        default = attributes.get("default")
        super().__init__(names.split(), help=help, **{
            "envvar": variable, "show_envvar": True, "show_default": default is not None and default is not False,
            **attributes})
        self.group = group

    def is_given(self, context: click.Context) -> bool:
        source = context.get_parameter_source(self.name) if self.name else None
        return source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)

    def shown(self, context: click.Context) -> str:
        """How the user wrote it, for messages."""
        from_variable = self.name and context.get_parameter_source(self.name) is ParameterSource.ENVIRONMENT
        return f"{self.opts[0]} (environment variable {self.envvar})" if from_variable else self.opts[0]


class Noted(Option):
    """An option whose value changes nothing here, for a reason: `note(value)` is logged when it is given."""

    def __init__(self, names: str, group: str, help: str, note: Callable[[Any], str | None], **attributes: Any) -> None:
        super().__init__(names, group, help, callback=self._take_note, expose_value=False, **attributes)
        self._note = note

    def _take_note(self, context: click.Context, _: click.Parameter, value: Any) -> None:
        if self.is_given(context) and (sentence := self._note(value)):
            note(context, f"{self.shown(context)}: {sentence}")


class Unsupported(Option):
    """An option of TGI that is refused when given, unless its value is one of `off`, which asks for nothing."""

    def __init__(self, names: str, *off: Any, **attributes: Any) -> None:
        super().__init__(names, "", "", callback=self._refuse, expose_value=False, hidden=True, **attributes)
        self._off = off

    def _refuse(self, context: click.Context, _: click.Parameter, value: Any) -> None:
        if self.is_given(context) and value not in self._off:
            raise InvalidArgument(f"{self.shown(context)}: not supported by this release, leave it out")


class ByteSize(click.ParamType[int]):
    """A number of bytes: `4294967296`, `4GiB`, `4.5GB`."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMGT]?)(i?)B?", str(value), re.IGNORECASE)
        if not match or (match[3] and not match[2]):
            self.fail(f"{value!r} is not a number of bytes such as 4294967296 or 4GiB", param, ctx)
        size = int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2].upper() or " "))
        if size < 1:
            self.fail(f"{value!r} is no memory at all", param, ctx)
        return size


class Command(click.Command):
    """A command whose help page shows the options by group and names those that are refused."""

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name, context_settings={"max_content_width": 110}, **attributes)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            if record := option.get_help_record(ctx):
                groups.setdefault(getattr(option, "group", "Other"), []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)
        refused = ", ".join(option.opts[0] for option in self.params if isinstance(option, Unsupported))
        with formatter.section("Options of TGI that this release refuses"):
            lines = textwrap.wrap(refused, formatter.width - 2, break_on_hyphens=False)
            formatter.write("".join(f"  {line}\n" for line in lines))


def note(context: click.Context, sentence: str) -> None:
    context.meta.setdefault(NOTES, []).append(sentence)


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


def _no_statistics(value: str) -> str | None:
    return None if value == "off" else "there are no usage statistics, nothing is sent"


MODEL, MEMORY, LIMITS = "Model", "Memory and batches", "Limits of a request"
SERVER, SHARDS, REST = "Server", "Shards", "Other"

OPTIONS: list[click.Parameter] = [
    Option("--model-id", MODEL, "A directory with a checkpoint, or a name on the Hugging Face Hub. Required."),
    Option("--revision", MODEL, "Branch, tag or commit on the Hub."),
    Option("--dtype", MODEL, "Number format of weights and activations. Default: the checkpoint's own. "
           "float32 is Penstock's addition.", type=click.Choice(["float16", "bfloat16", "float32"])),
    Option("--huggingface-hub-cache", MODEL, "Directory of downloaded checkpoints.",
           type=click.Path(file_okay=False, path_type=Path)),

    Option("--kv-memory", MEMORY, "Penstock: memory of each shard for keys and values, such as 4GiB. "
           "Default: a share of what is free.", type=ByteSize()),
    Option("--block-size", MEMORY, "Penstock: tokens in a block of that memory. Default: 16.", type=POSITIVE),
    Option("--max-batch-prefill-tokens", MEMORY, "Tokens that one step computes at most. "
           "Default: what runs in about 250 ms, measured at start.", type=Integer(1, 2**32 - 1)),
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

    Option("--hostname", SERVER, "IP address to listen on. A HOSTNAME that is none becomes 0.0.0.0.",
           default="0.0.0.0", callback=_hostname),
    Option("--port -p", SERVER, "Port to listen on.", type=PORT, default=3000),
    Option("--validation-workers", SERVER, "Threads that tokenise.", type=COUNT, default=2),
    Option("--graceful-termination-timeout -g", SERVER, "Seconds that running requests get after SIGTERM.",
           type=COUNT, default=90),
    Noted("--prometheus-port", SERVER, "Accepted; metrics are at /metrics of the main port.", type=PORT,
          default=9000, note=lambda value: f"nothing listens on {value}, metrics are at /metrics of the main port"),

    Option("--num-shard", SHARDS, "Processes that share the model. Default: 1.", type=COUNT),
    Option("--sharded", SHARDS, "true asks for more than one shard.", type=bool),
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
    Noted("--disable-grammar-support", REST, "Accepted; this release has no grammars.", is_flag=True,
          note=lambda value: None),

    Unsupported("--quantize"),
    Unsupported("--speculate", 0, type=COUNT),
    Unsupported("--kv-cache-dtype"),
    Unsupported("--trust-remote-code", False, is_flag=True),
    Unsupported("--cuda-graphs", "0"),
    Unsupported("--cuda-memory-fraction", 1.0, type=float),
    Unsupported("--disable-custom-kernels", False, is_flag=True),
    Unsupported("--weights-cache-override"),
    Unsupported("--tokenizer-config-path"),
    Unsupported("--lora-adapters"),
    Unsupported("--rope-scaling"),
    Unsupported("--rope-factor", type=float),
    Unsupported("--enable-prefill-logprobs", False, is_flag=True),
    Unsupported("--watermark-gamma", type=float),
    Unsupported("--watermark-delta", type=float),
    Unsupported("--api-key"),
    Unsupported("--cors-allow-origin", multiple=True),
    Unsupported("--otlp-endpoint"),
    Unsupported("--otlp-service-name", "text-generation-inference.router"),
    Unsupported("--ngrok", False, is_flag=True),
    Unsupported("--ngrok-authtoken"),
    Unsupported("--ngrok-edge"),
]
