from typing import get_args, get_type_hints

import pytest

from penstock.router.chat.thinking_format import FORMATS, NAMES, Place, named_format, place, taught_format
from penstock.system.settings import ServerSettings

USER = {"role": "user", "content": "What does <think> mean?"}


def test_names_are_those_of_the_setting():
    assert len({*NAMES}) == len(NAMES)
    assert {*get_args(get_type_hints(ServerSettings)["reasoning_parser"])} == {*NAMES, "auto", "none"}
    assert all(named_format(name) is each for each in FORMATS for name in each.names)


@pytest.mark.parametrize(("source", "name"), [
    ("{{ '<|im_start|>assistant\\n<think>\\n' + reasoning + '\\n</think>\\n\\n' }}", "deepseek_r1"),
    ("{{ '<think>\\n' + reasoning + '\\n</think>\\n<answer>\\n' + content + '\\n</answer>' }}", "hunyuan_a13b"),
    ("{{ '<think>\\n\\n</think>\\n\\n<response>\\n' }}", "ernie45"),
    ("{% set think_begin_token = '<seed:think>' %}", "seed_oss"),
    ("{{ '[THINK]' + block['thinking'] + '[/THINK]' }}", "mistral"),
    ("{{ '<|START_THINKING|><|END_THINKING|>' }}", "cohere"),
    ("{{ '◁think▷' }}", "kimi"),
    ("after 'Here is my thought process:' and after 'Here is my response:'", "granite"),
    ("{{ '<|start|>assistant<|channel|>analysis<|message|>' + thinking }}", "openai_gptoss"),
])
def test_what_templates_teach(source, name):
    assert taught_format(source).name == name


def test_templates_that_teach_nothing():
    assert taught_format("{% for message in messages %}<|im_start|>{{ message.content }}{% endfor %}") is None


@pytest.mark.parametrize(("prompt", "begun", "where"), [
    ("user: What does <think> mean?\nassistant:", None, Place.BEFORE),
    ("assistant:<think>\n", None, Place.WITHIN),
    ("assistant:<think></think>", None, Place.BEHIND),
    ("assistant:<think>\n\n</think>\n\n", None, Place.BEHIND),
    ("assistant:<think>\nLet me", "<think>\nLet me", Place.WITHIN),
    ("assistant:<think>\na\n</think>\n\nSo", "<think>\na\n</think>\n\nSo", Place.BEHIND),
    ("assistant:So", "So ", Place.BEHIND),
    ("assistant: So\nassistant:<think>", "So", Place.WITHIN),
])
def test_where_prompts_end(prompt, begun, where):
    messages = [USER] if begun is None else [USER, {"role": "assistant", "content": begun}]
    assert place(named_format("qwen3"), prompt, messages) is where


def test_where_prompts_of_channels_end():
    form = named_format("openai_gptoss")
    assert place(form, "<|start|>assistant", [USER]) is Place.BEFORE
    assert place(form, "<|start|>assistant<|channel|>analysis<|message|>", [USER]) is Place.WITHIN
    assert form.marks == ("<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|constrain|>")
