"""Agents that others wrote against a server whose model answers as a script says: with tools, schemas and thoughts."""

import os
from pathlib import Path

import pytest

from penstock.router.grammar.compiler import GrammarCompiler
from tests.clients.environments import python_of
from tests.clients.scripted import call, run, serve
from tests.router.api.chat_templates import HERMES
from tests.router.api.conftest import Start

PROGRAMS = Path(__file__).parent / "programs"
SCRIPT = {
    "How is it in Rome?": call("weather", city="Rome"),
    "22 degrees in Rome": "It is warm in Rome.",
    "Think about it": "<think>\nI add one and one.\n</think>\n\nIt is two.",
    "Name a city": '{"city":"Rome","population":3}',
    "Name a place": call("final_result", city="Rome", population=3),
}
TEMPLATE = HERMES + "{# thinks between <think> and </think> #}"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("program", ["openai_agents_client.py", "pydantic_ai_client.py", "langgraph_client.py"])
async def test_agent(start: Start, grammars: GrammarCompiler, tmp_path: Path, program: str) -> None:
    python = python_of("agents")
    server = await serve(start, SCRIPT, source=TEMPLATE, grammars=grammars)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    output = await run(server, python, PROGRAMS / program, str(server.client.make_url("")).rstrip("/"),
                       environment=environment, folder=tmp_path)
    assert output.endswith("all passed\n"), output


async def test_openhands(start: Start, grammars: GrammarCompiler, tmp_path: Path) -> None:
    """Its list of prices comes from its package, and not from a site."""
    python = python_of("openhands")
    server = await serve(start, SCRIPT, grammars=grammars)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    output = await run(server, python, PROGRAMS / "openhands_client.py", str(server.client.make_url("/v1")),
                       environment=environment, folder=tmp_path)
    assert output.endswith("all passed\n"), output


async def test_aider(start: Start, grammars: GrammarCompiler, tmp_path: Path) -> None:
    """It changes a file as the answer says. It asks a site for a list of models first, and goes on without."""
    program = python_of("aider").with_name("aider")
    note = tmp_path / "note.txt"
    note.write_text("violet\n")
    server = await serve(start, {"Write heliotrope": "So be it.\n\nnote.txt\n```\nheliotrope\n```\n"},
                         grammars=grammars)
    await run(server, program, "--model", "openai/demo", "--openai-api-base", str(server.client.make_url("/v1")),
              "--openai-api-key", "unused", "--message", "Write heliotrope into the file", "--no-git", "--yes",
              "--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-show-release-notes",
              "--no-gitignore", "--no-fancy-input", "--no-pretty", "note.txt",
              environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, folder=tmp_path)
    assert note.read_text() == "heliotrope\n"
