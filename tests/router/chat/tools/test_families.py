"""Which format of tool calls a chat template teaches, however long it is and whatever it repeats."""

import time

import pytest

from penstock.router.chat.tools.families import native_format


@pytest.mark.parametrize("part", [
    '{"name":', "<tool_call>", "[TOOL_CALLS] .", "<tool_call>\\n", '{"name": "a" ', " ", "{\\"])
def test_a_template_is_searched_in_linear_time(part: str) -> None:
    begin = time.process_time()
    assert native_format(part * (1_000_000 // len(part))) is None
    assert time.process_time() - begin < 1


def test_the_format_of_llama_3() -> None:
    found = native_format('Respond in the format {"name": function name, "parameters": dictionary of arguments}.')
    assert found is not None
    assert found.name == "llama"


def test_marks_that_many_patterns_begin_with_are_searched_in_linear_time() -> None:
    marks, begin = "｜DSML｜" * 100_000, time.process_time()
    for end, name in (("", "deepseek_v4"), ("function_calls", "deepseek_v32")):
        found = native_format(marks + end)
        assert found is not None
        assert found.name == name
    assert time.process_time() - begin < 1
