"""Continue's agent for terminals against a server whose model answers as a script says."""

import os
import shutil
from pathlib import Path

import pytest

from penstock.router.grammar.compiler import GrammarCompiler
from tests.clients.environments import program_of
from tests.clients.scripted import THINKS, THOUGHTS, call, output_of, prompts_of, serve
from tests.router.api.conftest import Server, Start

PROGRAM = "@continuedev/cli/dist/cn.js"
CALL = call("Bash", command="cat note")
SCRIPT = {"Which word is in the note?": THOUGHTS + CALL, "heliotrope": "The word is heliotrope."}
SETTINGS = """\
name: Penstock
version: 1.0.0
schema: v1
models:
  - name: ours
    provider: {provider}
    model: {model}
    apiBase: {url}
    apiKey: unused
    roles: [chat]
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def ask(server: Server, folder: Path, provider: str, model: str) -> tuple[int | None, str, str]:
    """Returns the status of the agent, its output, and its errors. It knows no login. It asks a site for its newest
    version, and goes on without."""
    program, node, home = program_of("continue", PROGRAM), shutil.which("node"), folder / "home"
    assert node is not None, "npm installed the agent, but there is no node"
    home.mkdir()
    settings = home / "config.yaml"
    settings.write_text(SETTINGS.format(provider=provider, model=model, url=server.client.make_url("/v1")))
    return await output_of(
        node, program, "-p", "Which word is in the note?", "--config", settings, "--auto",
        environment={"PATH": os.environ["PATH"], "HOME": str(home), "CONTINUE_GLOBAL_DIR": str(home)}, folder=folder)


@pytest.mark.parametrize(("provider", "model"), [("openai", "demo"), ("openai", "gpt-5"), ("anthropic", "demo")],
                         ids=["chats", "responses", "messages"])
async def test_a_tool_is_called_and_its_result_answered(
    start: Start, grammars: GrammarCompiler, tmp_path: Path, provider: str, model: str
) -> None:
    """The provider and the name of the model choose the API. The thoughts are not sent back."""
    (tmp_path / "note").write_text("heliotrope\n")
    server = await serve(start, SCRIPT, source=THINKS, grammars=grammars)
    status, output, errors = await ask(server, tmp_path, provider, model)
    assert (status, output.strip()) == (0, "The word is heliotrope."), errors
    first, second = prompts_of(server)
    assert second.startswith(first + CALL)


async def test_a_prompt_that_is_too_long(start: Start, tmp_path: Path) -> None:
    """The agent knows from the sentence that it is."""
    status, _, errors = await ask(await serve(start, SCRIPT, 2_000), tmp_path, "openai", "demo")
    assert status == 1
    assert "Context length exceeded" in errors
