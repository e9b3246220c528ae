"""Calls of tools as the templates write them that the models' makers have published: rendered as transformers renders
them, then read back, however the text is cut."""

import codecs
import json
import random
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from penstock.router.chat.deltas import CallBegin
from penstock.router.chat.messages import Message, read_messages
from penstock.router.chat.template import ChatTemplate
from penstock.router.chat.tools.call_format import CallFormat
from penstock.router.chat.tools.families import native_format
from penstock.router.chat.tools.grammar import tools_grammar
from tests.clients.environments import templates
from tests.router.chat.tools.calls import (
    WORDS,
    Call,
    calls_of,
    draw_calls,
    draw_tools,
    is_clear,
    offer_of,
    parse,
    words_of,
)
from tests.router.grammar.grammar_driver import TOKENIZER, accepts, make_compiler

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Published:
    """A template by its file, the format that it teaches, and how it wants calls."""

    file: str
    format: str
    as_text: bool = False
    """Whether it writes arguments as a text that is JSON."""
    most: int = 3
    """The most calls in one message."""
    without: str = ""
    """Characters that it does not escape in strings although it would have to."""
    has_own_space: bool = False
    """Whether it writes calls with other white space, escapes or fields than the grammar demands."""
    few_types: bool = False
    """Whether it fails at parameters of types that it does not know, such as null."""


PUBLISHED = [
    Published("Apertus-8B-Instruct", "apertus"), Published("Apriel-1.6-15b-Thinker-fixed", "jamba"),
    Published("Bielik-11B-v3.0-Instruct", "hermes"), Published("ByteDance-Seed-OSS", "seed_oss"),
    Published("CohereForAI-c4ai-command-r-plus-tool_use", "cohere", few_types=True, without="\u2028",
              has_own_space=True),
    Published("Cohere2MoE", "cohere"),
    Published("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere"), Published("GLM-4.6", "glm45"),
    Published("GLM-4.7-Flash", "glm47"), Published("GigaChat3-10B-A1.8B", "gigachat3", most=1),
    Published("GigaChat3.1-10B-A1.8B", "gigachat3", most=1), Published("LFM2.5-8B-A1B", "lfm2", without="\\'\""),
    Published("MiMo-VL", "hermes"), Published("MiniMax-M1", "minimax_m1"), Published("MiniMax-M2", "minimax_m2"),
    Published("Mistral-Small-3.2-24B-Instruct-2506", "mistral"), Published("NVIDIA-Nemotron-Nano-v2", "nemotron"),
    Published("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3_coder"),
    Published("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", few_types=True),
    Published("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", few_types=True),
    Published("Qwen-QwQ-32B", "hermes"), Published("Qwen-Qwen2.5-7B-Instruct", "hermes"),
    Published("Qwen-Qwen3-0.6B", "hermes"),
    Published("Qwen3-Coder", "qwen3_coder"), Published("Qwen3.5-4B", "qwen3_coder"),
    Published("Reka-Edge", "hermes", has_own_space=True),
    Published("Spark2.5", "glm47"), Published("StepFun3.5-Flash", "qwen3_coder"),
    Published("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3", as_text=True, most=2, has_own_space=True),
    Published("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3"),
    Published("deepseek-ai-DeepSeek-V3.1", "deepseek_v31"), Published("deepseek-ai-DeepSeek-V3.2", "deepseek_v32"),
    Published("deepseek-ai-DeepSeek-V4", "deepseek_v4", has_own_space=True),
    Published("deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek_v4", has_own_space=True),
    Published("ibm-granite-granite-4.0", "hermes"), Published("ibm-granite-granite-4.1", "hermes"),
    Published("inclusionai-ling-3.0-flash", "glm45", has_own_space=True),
    Published("meetkai-functionary-medium-v3.1", "functionary"),
    Published("meetkai-functionary-medium-v3.2", "functionary", as_text=True),
    Published("meta-llama-Llama-3.1-8B-Instruct", "llama", most=1),
    Published("meta-llama-Llama-3.2-3B-Instruct", "llama", most=1),
    Published("meta-llama-Llama-3.3-70B-Instruct", "llama", most=1),
    Published("mistralai-Ministral-3-14B-Reasoning-2512", "mistral"),
    Published("mistralai-Mistral-Nemo-Instruct-2407", "mistral", has_own_space=True),
    Published("moonshotai-Kimi-K2", "kimi_k2"),
    Published("poolside-Laguna-S-2.1", "glm47"), Published("poolside-Laguna-XS-2.1", "glm45"),
    Published("poolside-Laguna-XS.2", "glm45"), Published("tencent-Hy3", "hunyuan_v3"),
    Published("unsloth-Apriel-1.5", "jamba"), Published("unsloth-mistral-Devstral-Small-2507", "mistral"),
    Published("upstage-Solar-Open-100B", "solar_open"),
]
QUESTION = "A question."
NO_CALLS = {"ibm-granite-granite-3.3-2B-Instruct": "granite", "LFM2-8B-A1B": "lfm2", "LFM2.5-Instruct": "lfm2",
            "fireworks-ai-llama-3-firefunction-v2": "phi4_mini_json"}
"""Templates that teach a format, but write no calls of earlier answers."""


def source(file: str) -> str:
    return (templates() / f"{file}.jinja").read_text("utf-8")


def told(case: Published, tools: list[dict[str, Any]]) -> Any:
    """The tools as the template is told of them."""
    if not case.few_types:
        return tools
    return json.loads(re.sub(r'"type": "(null|array|object)", "d', '"type": "string", "d', json.dumps(tools)))


def render(case: Published, messages: list[dict[str, Any]], tools: list[dict[str, Any]], **options: Any) -> str:
    rendered: Any = render_jinja_template(
        [messages], tools=told(case, tools), chat_template=source(case.file), bos_token="<s>", eos_token="</s>",
        pad_token="<pad>", **options)
    return rendered[0] if isinstance(rendered[0], str) else rendered[0][0]


def answer(case: Published, form: CallFormat, calls: list[Call], tools: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """The text of an answer with calls as the template writes it, and the calls' ids. Something may stand before the
    calls, such as empty thoughts, and behind them an end."""
    messages = conversation(case, form, calls, case.as_text)
    ids = [call["id"] for call in messages[-1]["tool_calls"]]
    whole = render(case, messages, tools)
    prompt = render(case, messages[:1], tools, add_generation_prompt=True)
    if whole.startswith(prompt):
        return whole.removeprefix(prompt), ids
    return whole[whole.rindex(QUESTION) + len(QUESTION):], ids


def conversation(case: Published, form: CallFormat, calls: list[Call], as_text: bool) -> list[dict[str, Any]]:
    """A question, and an answer with calls, whose arguments are JSON as a text, or else objects."""
    made = [{"id": f"functions.{name}:{number}" if form.name == "kimi_k2" else f"abcdefgh{number}",
             "type": "function", "function": {
                 "name": name, "arguments": json.dumps(arguments, ensure_ascii=False) if as_text else arguments}}
            for number, (name, arguments) in enumerate(calls)]
    message = {"role": "assistant", "content": None if case.as_text else "", "tool_calls": made}
    return [{"role": "user", "content": QUESTION}, message]


def draw(case: Published, form: CallFormat, dice: random.Random) -> tuple[list[dict[str, Any]], list[Call]]:
    words = [word for word in words_of(form) if not set(word) & set(case.without)]
    while True:
        tools = draw_tools(dice)
        calls = draw_calls(dice, tools, words, case.most)
        if is_clear(form, calls):
            return tools, calls


def cuts(text: str) -> Iterator[list[str]]:
    """The text in bytes, of which a character may need several, and in tokens."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    yield [decoder.decode(bytes([byte])) for byte in text.encode()]
    offsets = TOKENIZER.encode(text, add_special_tokens=False).offsets
    bounds = sorted({0, len(text), *(end for _, end in offsets)})
    yield [text[begin:end] for begin, end in pairwise(bounds)]


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case.file)
def test_calls_are_read_as_the_template_writes_them(case: Published) -> None:
    form, dice = native_format(source(case.file)), random.Random(case.file)
    assert form is not None
    assert form.name == case.format
    for _ in range(12):
        tools, calls = draw(case, form, dice)
        text, ids = answer(case, form, calls, tools)
        offer = offer_of(tools)
        deltas = parse(form, text, offer=offer)
        assert calls_of(deltas) == calls, text
        assert [delta.id or call_id for delta, call_id in zip(
            (delta for delta in deltas if isinstance(delta, CallBegin)), ids, strict=True)] == ids
        for pieces in cuts(text):
            assert parse(form, *pieces, offer=offer) == deltas


@pytest.mark.parametrize("case", [case for case in PUBLISHED if not case.has_own_space], ids=lambda case: case.file)
async def test_grammars_demand_calls_as_the_template_writes_them(case: Published) -> None:
    form, dice = native_format(source(case.file)), random.Random(case.file)
    assert form is not None
    with closing(make_compiler()) as compiler:
        for _ in range(4):
            tools = draw_tools(dice, ("string", "integer"))
            calls = draw_calls(dice, tools, ["a", "b ", "Köln"], case.most)
            for _, arguments in calls:
                arguments.update({key: 7 for key, value in arguments.items() if value == 2**62})
            text, _ = answer(case, form, calls, tools)
            text = text if form.opened else text[text.index(form.marker):]
            offer = replace(offer_of(tools), must_call=True)
            grammar = await compiler.compile(tools_grammar(form, offer))
            last = form.end or form.close or "}"
            ends = (end for end in range(len(text), 0, -1) if text[:end].endswith(last))
            assert any(accepts(grammar, text[:end]) for end in ends), text


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case.file)
def test_a_cut_anywhere(case: Published) -> None:
    form, dice = native_format(source(case.file)), random.Random(case.file)
    assert form is not None
    tools, calls = draw(case, form, dice)
    text, _ = answer(case, form, calls, tools)
    offer = offer_of(tools)
    deltas = parse(form, text, offer=offer)
    for place in range(len(text)):
        assert parse(form, text[:place], text[place:], offer=offer) == deltas


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case.file)
def test_calls_of_earlier_answers_are_rendered_as_transformers_does(case: Published) -> None:
    """Whether a client sends arguments as JSON, as OpenAI's do, or as an object."""
    form, dice = native_format(source(case.file)), random.Random(case.file)
    assert form is not None
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    with closing(ChatTemplate({"default": source(case.file)}, special)) as template:
        for as_text in (False, True):
            tools, calls = draw(case, form, dice)
            wanted = conversation(case, form, calls, case.as_text)
            sent = [Message.model_validate(message) for message in conversation(case, form, calls, as_text)]
            rendered = template.render(
                read_messages(sent, template, None), tools=told(case, tools), add_generation_prompt=False)
            assert rendered == render(case, wanted, tools)


@pytest.mark.parametrize("file", NO_CALLS)
def test_templates_that_only_teach(file: str) -> None:
    form = native_format(source(file))
    assert form is not None
    assert form.name == NO_CALLS[file]


def test_words_have_what_formats_may_trip_over() -> None:
    assert {'"', "'", "\\", "\n", "😀", "{", "]"} <= set(WORDS)
