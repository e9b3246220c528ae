"""Servers, and grammars for them, which tests of several clients use."""

from collections.abc import AsyncIterator, Iterator

import pytest

from penstock.router.grammar.compiler import GrammarCompiler
from tests.fakes import FACTS
from tests.router.api.conftest import Start, starting
from tests.router.text.tokenizers_for_tests import DEMO


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with starting() as start:
        yield start


@pytest.fixture(scope="module")
def grammars() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(DEMO, FACTS.vocab_size, FACTS.eos_token_ids)
    yield compiler
    compiler.close()
