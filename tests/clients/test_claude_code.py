"""Claude Code, the agent itself, against a server whose model answers as a script says."""

import asyncio
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.bench.programs.scripted_model import by_last
from penstock.router.chat.template import ChatTemplate
from tests.clients.environments import program_of
from tests.fakes import FACTS, LIMITS, SpeakingFleet
from tests.router.api.chat_templates import HERMES
from tests.router.api.conftest import Server, Start, starting

PROGRAM = "@anthropic-ai/claude-code-linux-x64/claude"
CALL = '<tool_call>\n{"name": "Bash", "arguments": {"command": "cat note", "description": "Reads it"}}\n</tool_call>'
THOUGHTS = "<think>\nIt wants me to read.\n</think>\n\n"
THINKS = HERMES.replace(
    "{{ m.content }}",
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}")
"""A template that has the model read its earlier thoughts."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
async def start() -> Any:
    async with starting() as start:
        yield start


async def serve(start: Start, max_total_tokens: int, source: str = HERMES, call: str = CALL) -> Server:
    """A server with room for the agent's instructions and tools, some 15,000 tokens."""
    template = ChatTemplate({"default": source}, {})
    script = {"Which word is in the note?": call, "heliotrope": "The word is heliotrope.", "": "Hello."}
    limits = replace(LIMITS, max_input_tokens=max_total_tokens - 1, max_total_tokens=max_total_tokens,
                     max_batch_prefill_tokens=4096)
    facts = replace(FACTS, num_blocks=1 << 13, context_length=1 << 17, step_tokens=4096)
    return await start(limits, reply=by_last(script), facts=facts, template=template)


async def ask(server: Server, folder: Path, question: str) -> Mapping[str, Any]:
    """What the agent reports at its end. It knows no login, and finds no settings of anybody's."""
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "ANTHROPIC_AUTH_TOKEN": "unused",
        "ANTHROPIC_BASE_URL": str(server.client.make_url("")).rstrip("/"), "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(server.engine.limits.max_total_tokens)}
    process = await asyncio.create_subprocess_exec(
        program_of("claude-code", PROGRAM), "-p", question, "--model", "demo", "--allowedTools", "Bash",
        "--output-format", "json", cwd=folder, env=environment, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    output, errors = await process.communicate()
    assert output, errors.decode()
    report: Mapping[str, Any] = json.loads(output)
    return report


@pytest.mark.parametrize(("source", "call"), [(HERMES, CALL), (THINKS, f"{THOUGHTS}{CALL}")],
                         ids=["plain", "thinks"])
async def test_a_tool_is_called_and_its_result_answered(start: Start, tmp_path: Path, source: str, call: str) -> None:
    """The second prompt goes on from the first, thoughts included, and nearly all of it comes from the cache."""
    (tmp_path / "note").write_text("heliotrope")
    server = await serve(start, 50_000, source, call)
    report = await ask(server, tmp_path, "Which word is in the note?")
    assert (report["result"], report["is_error"], report["num_turns"]) == ("The word is heliotrope.", False, 2)
    assert isinstance(server.fleet, SpeakingFleet)
    first, second = server.fleet.model.prompts
    assert second.startswith(first + call)
    assert re.search("heliotrope<[|]im_end[|]>\n<[|]im_start[|]>assistant\n$", second)
    assert "x-anthropic-billing-header" not in second
    assert report["modelUsage"]["demo"]["contextWindow"] == 50_000  # as docs/messages.md has it told
    usage = report["usage"]
    num_first = len(await server.tokenizer.encode(first, add_special_tokens=False))
    num_second = len(await server.tokenizer.encode(second, add_special_tokens=False))
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == num_first + num_second
    assert usage["cache_read_input_tokens"] > 0.97 * num_second


async def test_a_prompt_that_is_too_long(start: Start, tmp_path: Path) -> None:
    """The agent knows from the sentence that it is."""
    report = await ask(await serve(start, 2_000), tmp_path, "Hello")
    assert report["is_error"]
    assert "too long" in report["result"].lower(), report["result"]
