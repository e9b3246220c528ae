"""The command `penstock run-batch`, which answers a file of requests without a server."""

import asyncio
from typing import Any

import click

from penstock.launcher import without_effect
from penstock.launcher.group_options import refuse_options_of_shards
from penstock.launcher.option_types import Command, Option
from penstock.launcher.options import OPTIONS
from penstock.offline.arguments import ALONE, config_of
from penstock.offline.batch_files import AnswerFile, NotAnswers, downloaded, is_url, upload
from penstock.offline.failures import NoShards
from penstock.router import logs
from penstock.router.fleet.errors import FleetError
from penstock.router.limits import LimitError
from penstock.router.text.encoding import TokenizerError
from penstock.system import child_environment
from penstock.system.setting import settings
from penstock.system.settings import LIMITS, MEMORY, MODEL, SHARDS, ServerSettings

FILES = "Files"
"""The group of its own options on the help page."""
OF_ANSWERS = ("model_id", "revision", "dtype", "quantize", "activations", "kv_cache_dtype", "rope_scaling",
              "rope_factor", "lora_adapters", "tokenizer_config_path", "tool_call_parser", "reasoning_parser",
              "watermark_gamma", "watermark_delta")
"""The options with which a run that goes on must be started again: others change no answer, or few."""
OF_OTHER_ROUTES = ("enable_prefill_logprobs",)
"""The limits of routes that no line can name."""
SHARED = tuple(each.name for each, setting, _ in settings(ServerSettings)
               if setting.group in (MODEL, MEMORY, LIMITS, SHARDS) and each.name not in (*ALONE, *OF_OTHER_ROUTES))
"""The options of `penstock serve` that it has, too."""


def answer(input_file: str, output_file: str, in_order: bool, **options: Any) -> None:
    """Answer the requests in a file with MODEL, a directory, a GGUF file or a name on the Hugging Face Hub.

    The file has OpenAI's batch format: a JSON object a line, {"custom_id": "1", "method": "POST", "url":
    "/v1/chat/completions", "body": {"messages": […]}}, or with /v1/completions or /v1/responses. The answers, {"id",
    "custom_id", "response", "error"}, are written as they come. A line that can't be answered has an error there, or a
    response with an error's status; the others are answered all the same.

    It may be killed at any moment: started again with the same files, it goes on. The file then has each custom_id
    once, with the answer that it would have had. A line that has an answer or an error there is not asked again;
    if it has changed since, the run is refused.
    """
    context = click.get_current_context()
    if options["groups"] is not None:
        refuse_options_of_shards(context)
    config = config_of(options)
    logs.configure(config.log_level, json_output=False, has_requests=not config.no_request_logs)
    logs.follow("penstock.launcher", config.launcher_log_level)
    without_effect.tell(context, config.unread_log_levels, config.unread_variables)
    child_environment.prepare_grpc()
    from penstock.offline.batch_run import Batch, run  # which imports gRPC

    try:
        with downloaded(input_file) as source, AnswerFile.opened(output_file) as answers:
            model = "\n".join(f"{name}={options[name]}" for name in OF_ANSWERS)
            batch = Batch(source, answers, in_order, model)
            asyncio.run(run(config, batch))
            if is_url(output_file):
                upload(answers, output_file)
    except (OSError, NoShards, NotAnswers, TokenizerError, LimitError, FleetError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{batch.num_answered} lines were answered, {batch.num_failed} have an error, {batch.num_known} were "
               f"in {output_file} already", err=True)


def _own(names: str, text: str, **attributes: Any) -> Option:
    return Option(names, FILES, text, envvar=None, show_envvar=False, **attributes)


command = Command("run-batch", callback=answer, help=answer.__doc__, params=[
    click.Argument(["model_id"], metavar="MODEL", required=False, envvar="MODEL_ID"),
    _own("--input-file -i", "The requests: a file, or an http or https URL.", required=True, metavar="FILE"),
    _own("--output-file -o", "Where the answers are appended: a file; or an http or https URL, where all are put at "
         "the end, so that a run that was killed begins anew.", required=True, metavar="FILE"),
    _own("--in-order", "Write the answers in the order of the requests, not as they end.", is_flag=True),
    *(option for option in OPTIONS if option.name in SHARED and option.name != "model_id")])
