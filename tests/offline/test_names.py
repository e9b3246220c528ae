"""The names that programs import, and those that errors tell."""

import subprocess
import sys

import pytest

import penstock
from penstock.offline.names import in_given_words


def test_names_that_programs_import_and_complete() -> None:
    assert {*penstock.__all__} <= {*dir(penstock)}
    assert all(getattr(penstock, name) is not None for name in penstock.__all__)


def test_the_import_takes_no_time() -> None:
    code = ("import time; start = time.process_time(); from penstock import LLM, AsyncLLM, SamplingParams; "
            "print(time.process_time() - start)")
    times = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(2)]
    assert min(times) < 0.3, times


@pytest.mark.parametrize(("sentence", "expected"), [
    ("`max_total_tokens` must be >= 2", "`max_model_len` must be >= 2"),
    ("give --kv-memory or a --max-total-tokens below 9", "give `kv_memory` or a `max_model_len` below 9"),
    ("see --help, a--dtype and `other`", "see --help, a--dtype and `other`"),
])
def test_settings_are_called_as_the_caller_has_them(sentence: str, expected: str) -> None:
    assert in_given_words(sentence) == expected
