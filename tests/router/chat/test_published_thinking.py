"""Thoughts as the templates write them that the models' makers have published, read back however the text is cut."""

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.router.chat.answer_form import AnswerForm
from penstock.router.chat.deltas import Content, Delta, Thinking
from penstock.router.chat.past_thoughts import fitted
from penstock.router.chat.template import ChatTemplate
from penstock.router.chat.thinking_format import Place, place, taught_format
from penstock.router.chat.tools.families import format_of
from tests.clients.environments import templates
from tests.router.chat.test_published_templates import cuts
from tests.router.chat.tools.calls import WORDS, calls_of, content_of, draw_calls, draw_tools, offer_of

pytestmark = pytest.mark.slow

QUESTION = {"role": "user", "content": "A question."}
ON, OFF = ({"enable_thinking": is_on, "thinking": is_on} for is_on in (True, False))
B, W, A = Place.BEFORE, Place.WITHIN, Place.BEHIND


@dataclass(frozen=True)
class Published:
    """A template by its file, the form that it teaches, and where its prompts end: by themselves, with thinking on and
    off. Some do not write thoughts of earlier answers; those that `has_calls` also do beside calls."""

    file: str
    form: str
    places: tuple[Place, Place, Place]
    writes: bool = True
    has_calls: bool = False


PUBLISHED = [
    Published("Apertus-8B-Instruct", "apertus", (B, B, B), writes=False),
    Published("Bielik-11B-v3.0-Instruct", "deepseek_r1", (B, W, B)),
    Published("ByteDance-Seed-OSS", "seed_oss", (B, B, B)),
    Published("Cohere2MoE", "cohere", (W, W, W)),
    Published("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere", (A, B, A), writes=False),
    Published("GLM-4.6", "deepseek_r1", (B, B, A), has_calls=True),
    Published("GLM-4.7-Flash", "deepseek_r1", (W, W, A), has_calls=True),
    Published("HuggingFaceTB-SmolLM3-3B", "deepseek_r1", (B, B, A), writes=False),
    Published("Kimi-K2-Thinking", "deepseek_r1", (B, B, B), writes=False),
    Published("LFM2.5-8B-A1B", "deepseek_r1", (B, B, B)),
    Published("MiniMax-M2", "deepseek_r1", (W, W, W), has_calls=True),
    Published("MiniMax-M3", "minimax_m3", (B, B, B)),
    Published("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "deepseek_r1", (W, W, A), has_calls=True),
    Published("NVIDIA-Nemotron-Nano-v2", "deepseek_r1", (W, W, W), writes=False),
    Published("Qwen-Qwen3-0.6B", "deepseek_r1", (B, B, A), has_calls=True),
    Published("Qwen3.5-4B", "deepseek_r1", (W, W, A), has_calls=True),
    Published("Reka-Edge", "deepseek_r1", (B, W, B)),
    Published("Spark2.5", "deepseek_r1", (W, W, A)),
    Published("StepFun3.5-Flash", "deepseek_r1", (W, W, W), has_calls=True),
    Published("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_r1", (W, W, W), writes=False),
    Published("deepseek-ai-DeepSeek-V3.1", "deepseek_r1", (A, W, A), writes=False),
    Published("deepseek-ai-DeepSeek-V3.2", "deepseek_r1", (A, W, A)),
    Published("deepseek-ai-DeepSeek-V4", "deepseek_r1", (A, W, A)),
    Published("google-gemma-4-31B-it", "gemma4", (A, B, A), writes=False),
    Published("ibm-granite-granite-3.3-2B-Instruct", "granite33", (B, B, B), writes=False),
    Published("inclusionai-ling-3.0-flash", "deepseek_r1", (W, W, A), has_calls=True),
    Published("mistralai-Ministral-3-14B-Reasoning-2512", "mistral", (B, B, B)),
    Published("openai-gpt-oss-120b", "openai_gptoss", (B, B, B), has_calls=True),
    Published("openbmb-MiniCPM5-1B", "deepseek_r1", (B, W, A)),
    Published("poolside-Laguna-XS.2", "deepseek_r1", (A, W, A)),
    Published("tencent-Hy3", "hunyuan_v3", (A, A, A), writes=False),
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def source(case: Published) -> str:
    return (templates() / f"{case.file}.jinja").read_text("utf-8")


@pytest.fixture
def template(request: pytest.FixtureRequest) -> Iterator[ChatTemplate]:
    with closing(ChatTemplate({"default": source(request.param)}, SPECIAL)) as template:
        yield template


def cases(*wanted: Published) -> Any:
    return pytest.mark.parametrize(
        ("case", "template"), [(case, case) for case in wanted], indirect=["template"],
        ids=[case.file for case in wanted])


def draw_text(dice: random.Random, *without: str) -> str:
    words = [word for word in WORDS if word not in ("</think>", *without)]
    return "x" + "".join(dice.choice(words) for _ in range(dice.randrange(12))) + "x"


def thoughts_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, Thinking))


@cases(*PUBLISHED)
def test_where_its_prompts_end(case: Published, template: ChatTemplate) -> None:
    form = taught_format(source(case))
    assert form is not None
    assert form.name == case.form
    prompts = [template.render([QUESTION], **variables) for variables in ({}, ON, OFF)]
    assert tuple(place(form, prompt, [QUESTION]) for prompt in prompts) == case.places


def read(form: AnswerForm, *pieces: str) -> list[Delta]:
    parser = form.parser()
    return [delta for piece in pieces for delta in parser.push(piece)] + parser.finish()


def written(case: Published, template: ChatTemplate, message: dict[str, Any], **options: Any) -> tuple[str, bool]:
    """The answer as the template writes it, and whether the prompt has opened its thoughts."""
    form = taught_format(source(case))
    assert form is not None
    prompt = template.render([QUESTION], **ON, **options)
    whole = template.render(fitted([QUESTION, message], source(case)), add_generation_prompt=False, **ON, **options)
    assert whole.startswith(prompt)
    return whole.removeprefix(prompt), place(form, prompt, [QUESTION]) is W


@cases(*(case for case in PUBLISHED if case.writes))
def test_thoughts_are_read_as_the_template_writes_them(case: Published, template: ChatTemplate) -> None:
    dice = random.Random(case.file)
    for _ in range(6):
        thoughts, content = draw_text(dice), draw_text(dice)
        text, is_open = written(case, template, {
            "role": "assistant", "content": content, "reasoning_content": thoughts})
        form = AnswerForm(thinking=taught_format(source(case)), is_thinking=is_open)
        deltas = read(form, text)
        assert thoughts_of(deltas) == thoughts
        assert content_of(deltas).removeprefix("<|START_TEXT|>").startswith(content), "the turn's end is behind it"
        for pieces in cuts(text):
            again = read(form, *pieces)
            assert (thoughts_of(again), content_of(again)) == (thoughts, content_of(deltas))
        for end in range(len(text)):
            cut = thoughts_of(read(form, text[:end]))
            assert thoughts.startswith(cut) or cut.startswith(thoughts), "a part of the mark is text"


@cases(*(case for case in PUBLISHED if case.has_calls))
def test_calls_behind_thoughts(case: Published, template: ChatTemplate) -> None:
    dice = random.Random(case.file)
    for _ in range(4):
        tools, thoughts = draw_tools(dice), draw_text(dice)
        calls = draw_calls(dice, tools, ["a", "Köln", '"', "\n"], 1)
        message = {"role": "assistant", "content": "", "reasoning_content": thoughts, "tool_calls": [
            {"id": "abcdefgh0", "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in calls]}
        text, is_open = written(case, template, message, tools=tools)
        form = AnswerForm(format_of(source(case)), offer_of(tools), taught_format(source(case)), is_open)
        for pieces in ([text], *cuts(text)):
            deltas = read(form, *pieces)
            assert thoughts_of(deltas) == thoughts
            assert calls_of(deltas) == calls
            assert not any(isinstance(delta, Content) and "x" in delta.text for delta in deltas)
