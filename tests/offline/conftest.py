"""One model for the tests that do it no harm."""

from collections.abc import Iterator

import pytest

from penstock import LLM
from tests.paths import DEMO_MODEL


@pytest.fixture(scope="session")
def llm() -> Iterator[LLM]:
    with LLM(str(DEMO_MODEL), enable_lora=True, max_num_seqs=8, kv_memory="16MiB", threads=1) as llm:
        yield llm
