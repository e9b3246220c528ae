"""Claude Code, the agent itself, against a server whose model answers as a script says."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import program_of
from tests.clients.scripted import THINKS, THOUGHTS, call, output_of, prompts_of, serve
from tests.router.api.chat_templates import HERMES
from tests.router.api.conftest import Server, Start

PROGRAM = "@anthropic-ai/claude-code-linux-x64/claude"
CALL = call("Bash", command="cat note", description="Reads it")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def script(answer: str) -> Mapping[str, str]:
    return {"Which word is in the note?": answer, "heliotrope": "The word is heliotrope.", "": "Hello."}


async def ask(server: Server, folder: Path, question: str) -> Mapping[str, Any]:
    """Returns the agent's report at its end. It knows no login, and finds no settings of anybody's."""
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "ANTHROPIC_AUTH_TOKEN": "unused",
        "ANTHROPIC_BASE_URL": str(server.client.make_url("")).rstrip("/"), "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(server.engine.limits.max_total_tokens)}
    _, output, errors = await output_of(
        program_of("claude-code", PROGRAM), "-p", question, "--model", "demo", "--allowedTools", "Bash",
        "--output-format", "json", environment=environment, folder=folder)
    assert output, errors
    report: Mapping[str, Any] = json.loads(output)
    return report


@pytest.mark.parametrize(("source", "answer"), [(HERMES, CALL), (THINKS, THOUGHTS + CALL)], ids=["plain", "thinks"])
async def test_a_tool_is_called_and_its_result_answered(start: Start, tmp_path: Path, source: str, answer: str) -> None:
    """The second prompt goes on from the first, thoughts included, and nearly all of it comes from the cache."""
    (tmp_path / "note").write_text("heliotrope")
    server = await serve(start, script(answer), source=source)
    report = await ask(server, tmp_path, "Which word is in the note?")
    assert (report["result"], report["is_error"], report["num_turns"]) == ("The word is heliotrope.", False, 2)
    first, second = prompts_of(server)
    assert second.startswith(first + answer)
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
    report = await ask(await serve(start, script(CALL), 2_000), tmp_path, "Hello")
    assert report["is_error"]
    assert "too long" in report["result"].lower(), report["result"]
