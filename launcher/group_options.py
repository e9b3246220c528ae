"""The options of `penstock group`: those of `penstock serve` that concern shards, and its own."""

import copy
from typing import Any

import click
from click.core import ParameterSource

from penstock.launcher.option_types import COUNT, POSITIVE, Noted, Option, Unsupported
from penstock.launcher.options import OPTIONS, SHARDS
from penstock.system import addresses
from penstock.system.arguments import InvalidArgument

SHARED = (
    "revision", "dtype", "quantize", "activations", "model_impl", "rope_scaling", "rope_factor",
    "huggingface_hub_cache", "watermark_gamma", "watermark_delta", "kv_memory", "kv_cache_dtype",
    "cuda_memory_fraction", "block_size", "max_adapter_memory", "max_batch_prefill_tokens", "max_batch_size",
    "max_concurrent_requests", "speculate", "draft_model_id", "graceful_termination_timeout", "otlp_endpoint",
    "otlp_service_name", "shard_tls_ca", "shard_tls_cert", "shard_tls_key", "shard_tls_name", "num_shard",
    "pipeline_parallel_size", "sharded", "device", "deterministic", "cuda_graphs", "threads", "step_timeout",
    "startup_timeout", "master_addr", "master_port", "json_output", "env")
"""The options of the launcher that mean the same for a group without a router."""
OF_SHARDS = (
    "dtype", "quantize", "activations", "model_impl", "rope_scaling", "rope_factor", "watermark_gamma",
    "watermark_delta", "kv_memory", "kv_cache_dtype", "cuda_memory_fraction", "block_size", "draft_model_id",
    "num_shard", "pipeline_parallel_size", "sharded", "device", "deterministic", "cuda_graphs", "threads",
    "master_addr", "master_port")
"""Those that mean nothing to a router without shards of its own."""


class Address(click.ParamType[tuple[str, int]]):
    """HOST:PORT, as the host and the port."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        try:
            return value if isinstance(value, tuple) else addresses.split(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


OWN: list[click.Parameter] = [
    Option("--listen", SHARDS, "Where the shards listen: the first one at HOST:PORT, the others at the ports that "
           "follow. Required.", type=Address(), required=True),
    Option("--group-name", SHARDS, "What routers, logs and metrics call the group. Default: HOST:PORT of --listen, or "
           "with several machines of --master-addr and --master-port."),
    Option("--nnodes", SHARDS, "Machines that the shards are on, each of which has as many; --num-shard counts those "
           "of all. They meet at --master-addr and --master-port, and exchange at the ports behind that.",
           type=POSITIVE, default=1),
    Option("--node-rank", SHARDS, "Which of these machines this is: 0, which is at --master-addr, to nnodes - 1.",
           type=COUNT, default=0),
    Option("--allow-clear-exchange", SHARDS, "Let GPUs of several machines exchange by NCCL, which encrypts nothing: "
           "for networks that nobody else is on.", is_flag=True),
]

GROUP_OPTIONS: list[click.Parameter] = [
    *OWN, *(option for option in OPTIONS if option.name in SHARED)]


def completed(context: click.Context) -> dict[str, Any]:
    """Returns the values of a command line of `penstock group`, and for the options of `penstock serve` that it does
    not have their defaults."""
    others = [_without_variable(option) for option in OPTIONS
              if not isinstance(option, Noted | Unsupported) and option.name not in context.params]
    defaults = click.Command("defaults", params=others).make_context("defaults", []).params
    has_adapters = context.get_parameter_source("max_adapter_memory") in (
        ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return defaults | context.params | {"has_adapters": has_adapters}


def _without_variable(option: click.Parameter) -> click.Parameter:
    """Returns an option whose value is its default, whatever the environment says."""
    option = copy.copy(option)
    option.envvar = None
    return option


def refuse_options_of_shards(context: click.Context) -> None:
    """Raises InvalidArgument for an option that concerns shards, given to a router that starts none."""
    for option in context.command.params:
        if option.name in OF_SHARDS and isinstance(option, Option) and option.is_given(context):
            raise InvalidArgument(f"{option.shown(context)} concerns shards, and with --groups none are started here: "
                                  "give it to `penstock group`, which starts them")
