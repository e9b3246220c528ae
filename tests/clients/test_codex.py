"""Codex, the agent itself, against a server whose model answers as a script says."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import program_of
from tests.clients.scripted import call, output_of, prompts_of, serve
from tests.router.api.conftest import Server, Start

PROGRAM = "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
SCRIPT = {"Which word is in the note?": call("exec_command", cmd="cat note"),
          "heliotrope": "The word is heliotrope.", "": "Hello."}
SETTINGS = """\
model = "demo"
model_provider = "penstock"
[model_providers.penstock]
name = "Penstock"
base_url = "URL"
wire_api = "responses"
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


async def ask(server: Server, folder: Path, question: str) -> list[dict[str, Any]]:
    """Returns the events that the agent reports as it works. It knows no login, and finds no settings of anybody's."""
    home = folder / "home"
    home.mkdir()
    (home / "config.toml").write_text(SETTINGS.replace("URL", str(server.client.make_url("/v1"))))
    _, output, errors = await output_of(
        program_of("codex", PROGRAM), "exec", "--skip-git-repo-check", "--json", "--sandbox", "danger-full-access",
        question, environment={"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home)}, folder=folder)
    assert output, errors
    return [json.loads(line) for line in output.splitlines()]


async def test_a_tool_is_called_and_its_result_answered(start: Start, tmp_path: Path) -> None:
    """The second prompt goes on from the first, and nearly all of it comes from the cache. Tools that the server does
    not have, which the agent names, harm nothing."""
    (tmp_path / "note").write_text("heliotrope\n")
    server = await serve(start, SCRIPT)
    events = await ask(server, tmp_path, "Which word is in the note?")
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert [(item["command"], item["aggregated_output"], item["exit_code"])
            for item in items if item["type"] == "command_execution"] == [
                ("/bin/bash -lc 'cat note'", "heliotrope\n", 0)]
    assert items[-1]["text"] == "The word is heliotrope."
    first, second = prompts_of(server)
    assert second.startswith(first)
    assert "web_search" not in second
    usage = events[-1]["usage"]
    num_first, num_second = [len(await server.tokenizer.encode(each, False)) for each in (first, second)]
    assert usage["input_tokens"] == num_first + num_second
    assert usage["cached_input_tokens"] > 0.97 * num_second


async def test_a_prompt_that_is_too_long(start: Start, tmp_path: Path) -> None:
    """The agent knows from the error's code that it is."""
    events = await ask(await serve(start, SCRIPT, 2_000), tmp_path, "Hello")
    assert events[-1]["type"] == "turn.failed"
    assert "ran out of room in the model's context window" in events[-1]["error"]["message"]
