"""Agents that others wrote against a server whose model answers as a script says: with tools, schemas and thoughts."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.bench.programs.scripted_model import by_last
from penstock.router.chat.template import ChatTemplate
from penstock.router.grammar.compiler import GrammarCompiler
from tests.clients.environments import python_of
from tests.fakes import FACTS, LIMITS, SpeakingFleet
from tests.router.api.chat_templates import HERMES
from tests.router.api.conftest import Server, Start, starting
from tests.router.text.tokenizers_for_tests import DEMO

PROGRAMS = Path(__file__).parent / "programs"
CITY = '{"city":"Rome","population":3}'
CALL = '<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
SCRIPT = {
    "How is it in Rome?": CALL.format(name="weather", arguments='{"city": "Rome"}'),
    "22 degrees in Rome": "It is warm in Rome.",
    "Think about it": "<think>\nI add one and one.\n</think>\n\nIt is two.",
    "Name a city": CITY,
    "Name a place": CALL.format(name="final_result", arguments=CITY),
}
TEMPLATE = HERMES + "{# thinks between <think> and </think> #}"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with starting() as start:
        yield start


@pytest.fixture(scope="module")
def grammars() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(DEMO, FACTS.vocab_size, FACTS.eos_token_ids)
    yield compiler
    compiler.close()


async def serve(start: Start, grammars: GrammarCompiler, answers: Mapping[str, str]) -> Server:
    """A server whose model answers by a script."""
    facts = replace(FACTS, num_blocks=1 << 12, context_length=1 << 14, step_tokens=4096)
    limits = replace(LIMITS, max_input_tokens=8000, max_total_tokens=8192, max_batch_prefill_tokens=4096)
    return await start(limits, reply=by_last(answers), facts=facts, grammars=grammars,
                       template=ChatTemplate({"default": TEMPLATE}, {}))


async def run(server: Server, *command: str | Path, environment: Mapping[str, str], folder: Path) -> str:
    """Returns the output of a program that ends well."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT)
    output, _ = await process.communicate()
    assert isinstance(server.fleet, SpeakingFleet)
    assert process.returncode == 0, f"{output.decode()}\nThe last prompt:\n{server.fleet.model.prompts[-1]}"
    return output.decode()


@pytest.mark.parametrize("program", ["openai_agents_client.py", "pydantic_ai_client.py", "langgraph_client.py"])
async def test_agent(start: Start, grammars: GrammarCompiler, tmp_path: Path, program: str) -> None:
    python = python_of("agents")
    server = await serve(start, grammars, SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    output = await run(server, python, PROGRAMS / program, str(server.client.make_url("")).rstrip("/"),
                       environment=environment, folder=tmp_path)
    assert output.endswith("all passed\n"), output


async def test_aider(start: Start, grammars: GrammarCompiler, tmp_path: Path) -> None:
    """It changes a file as the answer says. It asks a site for a list of models first, and goes on without."""
    program = python_of("aider").with_name("aider")
    note = tmp_path / "note.txt"
    note.write_text("violet\n")
    server = await serve(start, grammars, {"Write heliotrope": "So be it.\n\nnote.txt\n```\nheliotrope\n```\n"})
    await run(server, program, "--model", "openai/demo", "--openai-api-base", str(server.client.make_url("/v1")),
              "--openai-api-key", "unused", "--message", "Write heliotrope into the file", "--no-git", "--yes",
              "--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-show-release-notes",
              "--no-gitignore", "--no-fancy-input", "--no-pretty", "note.txt",
              environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, folder=tmp_path)
    assert note.read_text() == "heliotrope\n"
