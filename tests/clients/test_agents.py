"""Agents that others wrote against a server whose model answers as a script says: with tools, schemas and thoughts."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.bench.programs.scripted_model import by_last
from penstock.router.chat.template import ChatTemplate
from penstock.router.grammar.compiler import GrammarCompiler
from tests.clients.environments import python_of
from tests.fakes import FACTS, LIMITS, SpeakingFleet
from tests.router.api.chat_templates import HERMES
from tests.router.api.conftest import Start, starting
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


@pytest.mark.parametrize("program", ["openai_agents_client.py", "pydantic_ai_client.py", "langgraph_client.py"])
async def test_agent(start: Start, program: str) -> None:
    python = python_of("agents")
    facts = replace(FACTS, num_blocks=1 << 12, context_length=1 << 14, step_tokens=4096)
    limits = replace(LIMITS, max_input_tokens=8000, max_total_tokens=8192, max_batch_prefill_tokens=4096)
    grammars = GrammarCompiler(DEMO, facts.vocab_size, facts.eos_token_ids)
    server = await start(limits, reply=by_last(SCRIPT), facts=facts, grammars=grammars,
                         template=ChatTemplate({"default": TEMPLATE}, {}))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = await asyncio.create_subprocess_exec(
        python, PROGRAMS / program, str(server.client.make_url("")).rstrip("/"), env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    output, _ = await process.communicate()
    grammars.close()
    assert isinstance(server.fleet, SpeakingFleet)
    assert process.returncode == 0, f"{output.decode()}\nThe last prompt:\n{server.fleet.model.prompts[-1]}"
    assert output.endswith(b"all passed\n"), output.decode()
