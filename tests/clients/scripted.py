"""Servers whose model answers agents as a script says, and the agents' processes."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.bench.programs.scripted_model import by_last
from penstock.router.chat.template import ChatTemplate
from penstock.router.grammar.compiler import GrammarCompiler
from tests.fakes import FACTS, LIMITS, SpeakingFleet
from tests.router.api.chat_templates import HERMES
from tests.router.api.conftest import Server, Start

THINKS = HERMES.replace(
    "{{ m.content }}",
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}")
"""A template that has the model read its earlier thoughts."""
THOUGHTS = "<think>\nIt wants me to read.\n</think>\n\n"


def call(name: str, **arguments: Any) -> str:
    """Returns how a model writes a call of a tool."""
    return f'<tool_call>\n{json.dumps({"name": name, "arguments": arguments})}\n</tool_call>'


async def serve(start: Start, answers: Mapping[str, str], max_total_tokens: int = 50_000, source: str = HERMES,
                grammars: GrammarCompiler | None = None) -> Server:
    """A server whose model answers by a script, with room for an agent's instructions and tools: some 15,000 tokens."""
    limits = replace(LIMITS, max_input_tokens=max_total_tokens - 1, max_total_tokens=max_total_tokens,
                     max_batch_prefill_tokens=4096)
    facts = replace(FACTS, num_blocks=1 << 13, context_length=1 << 17, step_tokens=4096)
    return await start(limits, reply=by_last(answers), facts=facts, grammars=grammars,
                       template=ChatTemplate({"default": source}, {}))


def prompts_of(server: Server) -> Sequence[str]:
    """Returns the prompts that a server's model has answered."""
    assert isinstance(server.fleet, SpeakingFleet)
    return server.fleet.model.prompts


async def output_of(
    *command: str | Path, environment: Mapping[str, str], folder: Path
) -> tuple[int | None, str, str]:
    """Returns the status of a program that ran in a folder, its output, and its errors."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE)
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


async def run(server: Server, *command: str | Path, environment: Mapping[str, str], folder: Path) -> str:
    """Returns the output of a program that ends well."""
    status, output, errors = await output_of(*command, environment=environment, folder=folder)
    assert status == 0, f"{output}\n{errors}\nThe prompts:\n{prompts_of(server)}"
    return output
