from collections.abc import Iterator

import pytest

from penstock.router.grammar.compiler import GrammarCompiler
from tests.router.grammar.grammar_driver import make_compiler


@pytest.fixture(scope="session")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = make_compiler()
    yield compiler
    compiler.close()
