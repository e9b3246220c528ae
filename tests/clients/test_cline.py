"""Cline's agent for terminals against a server whose model answers as a script says."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.router.grammar.compiler import GrammarCompiler
from tests.clients.environments import program_of
from tests.clients.scripted import THINKS, THOUGHTS, call, output_of, prompts_of, run, serve
from tests.router.api.conftest import Server, Start

PROGRAM = "@cline/cli-linux-x64/bin/cline"
CALL = call("run_commands", commands=["cat note"])
SCRIPT = {"Which word is in the note?": THOUGHTS + CALL, "heliotrope": "The word is heliotrope."}
SETTINGS = {"telemetryOptOut": True, "autoUpdateEnabled": False}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def ask(server: Server, folder: Path, provider: str) -> Any:
    """Returns the agent's report at its end. It knows no login, and leaves no process behind: one of its own would
    go on where it had its usual directory."""
    program, data = program_of("cline", PROGRAM), folder / "data"
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    (data / "settings").mkdir(parents=True)
    (data / "settings" / "global-settings.json").write_text(json.dumps(SETTINGS))
    await run(server, program, "auth", "--provider", provider, "--apikey", "unused", "--modelid", "demo", "--baseurl",
              str(server.client.make_url("/v1")), "--data-dir", data, environment=environment, folder=folder)
    _, output, errors = await output_of(program, "--json", "--data-dir", data, "Which word is in the note?",
                                        environment=environment, folder=folder)
    events = [json.loads(line) for line in output.splitlines()]
    assert [event["type"] for event in events[-1:]] == ["run_result"], f"{output}\n{errors}"
    return events[-1]


@pytest.mark.parametrize(("provider", "kept"), [("openai", THOUGHTS), ("openai-native", "")],
                         ids=["chats", "responses"])
async def test_a_tool_is_called_and_its_result_answered(
    start: Start, grammars: GrammarCompiler, tmp_path: Path, provider: str, kept: str
) -> None:
    """The provider chooses the API: chats, by which thoughts are sent back, or responses, of which hosted tools are
    asked for that the server does not have. The second prompt goes on from the first."""
    (tmp_path / "note").write_text("heliotrope\n")
    server = await serve(start, SCRIPT, source=THINKS, grammars=grammars)
    report = await ask(server, tmp_path, provider)
    assert (report["text"], report["finishReason"], report["iterations"]) == ("The word is heliotrope.", "completed", 2)
    first, second = prompts_of(server)
    assert second.startswith(first + kept + CALL)
    assert "web_search" not in first
    num_first, num_second = [len(await server.tokenizer.encode(each, False)) for each in (first, second)]
    assert report["usage"]["inputTokens"] == num_first + num_second
    assert report["usage"]["cacheReadTokens"] > 0.97 * num_second


async def test_a_prompt_that_is_too_long(start: Start, tmp_path: Path) -> None:
    """The agent knows from the error that it is."""
    report = await ask(await serve(start, SCRIPT, 2_000), tmp_path, "openai")
    assert report["finishReason"] == "error"
    assert "exceeds the model's context window" in report["text"]
