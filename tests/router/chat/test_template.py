"""Which files a template comes from, which of several is used, and what keeps one that does not end from doing harm."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from penstock.router.chat.template import ChatTemplate
from penstock.router.errors import TemplateError
from penstock.router.text.encoding import TokenizerError
from tests.router.chat.conversations import CLOCK, CONVERSATIONS, QUESTION
from tests.tiny_models import DEMO_MODEL

HELLO = [{"role": "user", "content": "Hello"}]
NAMED = [{"name": "default", "template": "plain {{ messages[0].content }}"},
         {"name": "tool_use", "template": "with {{ tools[0].function.name }}"},
         {"name": "rag", "template": "from {{ documents[0].title }}"}]
ENDLESS = "{% set r = range(100000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}"


def write(directory: Path, **files: str | dict) -> Path:
    """Files by name, `__` for the dot."""
    for name, content in files.items():
        path = directory / name.replace("__", ".")
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return directory


def load(*arguments: Path) -> ChatTemplate:
    template = ChatTemplate.load(*arguments)
    assert template is not None
    return template


def test_demo_model():
    template = load(DEMO_MODEL)
    assert template.render(HELLO) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(HELLO, add_generation_prompt=False) == "<|im_start|>user\nHello<|im_end|>\n"
    assert not template.reads("tools")


def test_no_template(tmp_path):
    assert ChatTemplate.load(tmp_path) is None
    assert ChatTemplate.load(write(tmp_path, tokenizer_config__json={"eos_token": "</s>"})) is None


def test_order_of_files(tmp_path):
    write(tmp_path, chat_template__json={"chat_template": "processor"})
    assert load(tmp_path).render(HELLO) == "processor"
    write(tmp_path, tokenizer_config__json={"chat_template": "configuration"})
    assert load(tmp_path).render(HELLO) == "configuration"
    write(tmp_path, chat_template__jinja="file")
    assert load(tmp_path).render(HELLO) == "file"
    config = tmp_path / "other.json"
    write(tmp_path, other__json={"chat_template": "other {{ eos_token }}", "eos_token": "<end>"})
    assert load(tmp_path, config).render(HELLO) == "other <end>"
    write(tmp_path, other__json={"eos_token": "<end>"})
    assert load(tmp_path, config).render(HELLO) == "file"


def test_named_templates(tmp_path):
    template = load(write(tmp_path, tokenizer_config__json={"chat_template": NAMED}))
    assert template.reads("tools")
    assert not template.reads("tools", "rag")
    assert template.render(HELLO) == "plain Hello"
    assert template.render(HELLO, tools=[CLOCK]) == "with clock"
    assert template.render(HELLO, chat_template="rag", tools=[CLOCK], documents=[{"title": "B"}]) == "from B"
    with pytest.raises(TemplateError, match=r"template not found: .* 'other', but \['default', 'rag', 'tool_use'\]"):
        template.render(HELLO, chat_template="other")


def test_no_default(tmp_path):
    template = load(write(tmp_path, tokenizer_config__json={"chat_template": NAMED[1:]}))
    assert template.render(HELLO, tools=[CLOCK]) == "with clock"
    with pytest.raises(TemplateError, match="'default'"):
        template.render(HELLO)


def test_additional_files(tmp_path):
    (tmp_path / "additional_chat_templates").mkdir()
    write(tmp_path / "additional_chat_templates", tool_use__jinja="tools", rag__jinja="rag")
    write(tmp_path, chat_template__jinja="default", tokenizer_config__json={"chat_template": NAMED})
    template = load(tmp_path)
    assert [template.render(HELLO), template.render(HELLO, tools=[]), template.render(HELLO, chat_template="rag")] == [
        "default", "tools", "rag"]


@pytest.mark.parametrize(("config", "special_tokens"), [
    ({"bos_token": "<a>", "eos_token": {"__type": "AddedToken", "content": "<|im_end|>"}}, {}),
    ({"bos_token": "<a>", "image_token": "<i>"}, {"bos_token": {"content": "<b>"}, "eos_token": "<|im_end|>"}),
    ({"bos_token": "<a>", "added_tokens_decoder": {}}, {"bos_token": "<b>"}),
    ({"extra_special_tokens": {"audio_token": "<s>"}, "add_bos_token": True}, {}),
    ({"eos_token": None, "pad_token": None}, {})])
def test_special_tokens(tmp_path, config, special_tokens):
    source = "{% for name in [bos_token, eos_token, pad_token, image_token, audio_token, add_bos_token] %}" \
        "{{ name }},{% endfor %}"
    (tmp_path / "tokenizer.json").write_bytes((DEMO_MODEL / "tokenizer.json").read_bytes())
    write(tmp_path, chat_template__jinja=source, special_tokens_map__json=special_tokens,
          tokenizer_config__json={"tokenizer_class": "PreTrainedTokenizerFast", **config})
    reference = AutoTokenizer.from_pretrained(tmp_path).apply_chat_template(HELLO, tokenize=False)
    assert load(tmp_path).render(HELLO) == reference


@pytest.mark.parametrize(("files", "sentence"), [
    ({"tokenizer_config__json": "{"}, "tokenizer_config.json is no JSON"),
    ({"tokenizer_config__json": "[]"}, "tokenizer_config.json holds no JSON object"),
    ({"tokenizer_config__json": {"chat_template": 1}}, "`chat_template` is neither a text nor a list of texts"),
    ({"tokenizer_config__json": {"chat_template": [{"name": "x"}]}}, "`chat_template` is neither a text nor a list"),
    ({"chat_template__json": {"chat_template": []}}, None)])
def test_damaged_files(tmp_path, files, sentence):
    write(tmp_path, **files)
    if sentence is None:
        assert ChatTemplate.load(tmp_path) is None
    else:
        with pytest.raises(TokenizerError, match=sentence):
            ChatTemplate.load(tmp_path)


def test_missing_config_is_named(tmp_path):
    with pytest.raises(TokenizerError, match=r"cannot read .*nowhere\.json"):
        ChatTemplate.load(tmp_path, tmp_path / "nowhere.json")


def test_damaged_template_is_logged(caplog):
    template = ChatTemplate({"default": "a\n{% if %}", "good": "fine"}, {})
    assert "the chat template 'default' can't be used: Expected an expression" in caplog.text
    assert "line 2" in caplog.text
    with pytest.raises(TemplateError, match="Template error: Expected an expression"):
        template.render(HELLO)
    assert template.render(HELLO, chat_template="good") == "fine"


@pytest.mark.parametrize(("source", "takes_tools"), [
    ("{% for tool in tools %}{{ tool }}{% endfor %}", True), ("{% if tools is defined %}{% endif %}", True),
    ("tools", False), ("{% set tools = [] %}{{ tools }}", False),
    ("{% macro f(tools) %}{{ tools }}{% endmacro %}{{ f(1) }}", False)])
def test_takes_tools(source, takes_tools):
    assert ChatTemplate({"default": source}, {}).reads("tools") is takes_tools


def test_clients_can_not_rename_the_conversation():
    template = ChatTemplate({"default": "{{ messages[0].content }}{{ self_ }}"}, {})
    assert template.render(HELLO, **{"messages": [], "self": 1, "self_": 2}) == "Hello2"


def test_continued_message_stands_for_itself():
    """A template that writes the message twice, and a user who writes what marks its end."""
    template = ChatTemplate({"default": "{% for m in messages %}{{ m.content }}{{ m.content }};{% endfor %}"}, {})
    messages = [{"role": "user", "content": "THIS_ANSWER_CONTINUES_HERE"}, {"role": "assistant", "content": "a b"}]
    assert template.render(messages, continue_final_message=True).endswith("a ba b")


@pytest.mark.parametrize(("source", "sentence"), [
    (ENDLESS, "rendering took too long"),
    pytest.param("{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}"
                 "{{ ns.a }}", "rendering took too long", marks=pytest.mark.slow),
    ("{% for i in range(90000) %}{{ 'x' * 1000 }}{% endfor %}", "the text has more than 33554432 characters"),
    ("{{ 'a' * 10 ** 10 }}", "MemoryError"),
    ("{% set x %}{% for i in range(90000) %}{{ 'x' * 100000 }}{% endfor %}{% endset %}{{ x }}", "MemoryError"),
    ("{{ 'a' | center(9999999999) }}", "MemoryError"),
    pytest.param("{% set n = messages | length + 8 %}{{ (n ** n) ** (n ** n) }}", "rendering took too long",
                 marks=pytest.mark.slow)])
def test_harmful_template(source, sentence):
    template = ChatTemplate({"default": source, "good": "fine"}, {})
    with pytest.raises(TemplateError, match=sentence):
        template.render(HELLO)
    assert template.render(HELLO, chat_template="good") == "fine"


@pytest.mark.slow
def test_template_that_does_not_compile_in_time(caplog):
    template = ChatTemplate({"default": "{{ (9 ** 9) ** (9 ** 9) }}"}, {})
    assert "the chat template 'default' can't be used: Template error: rendering took too long" in caplog.text
    with pytest.raises(TemplateError, match="took too long"):
        template.render(HELLO)


async def test_event_loop_goes_on_meanwhile():
    template = ChatTemplate({"default": ENDLESS.replace("100000", "2000")}, {})
    work = asyncio.create_task(template.render_async(HELLO))
    num_turns = 0
    while not work.done():
        await asyncio.sleep(0.001)
        num_turns += 1
    assert num_turns > 10
    assert await work == ""


async def test_many_at_once():
    template = load(DEMO_MODEL)
    texts = await asyncio.gather(*(
        template.render_async([{"role": "user", "content": str(index)}], add_generation_prompt=False)
        for index in range(100)))
    assert texts == [f"<|im_start|>user\n{index}<|im_end|>\n" for index in range(100)]


def test_process_that_was_killed_is_replaced():
    template = load(DEMO_MODEL)
    first = template.render(HELLO)
    [process] = template._renderers.each[-1]._processes
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert template.render(HELLO) == first


def test_process_ends_with_its_template():
    template = load(DEMO_MODEL)
    [process] = template._renderers.each[-1]._processes
    assert process.poll() is None
    del template
    assert process.returncode == -signal.SIGKILL


def test_what_json_can_not_carry():
    template = ChatTemplate({"default": "{{ big }}{{ lone }}"}, {})
    assert template.render(QUESTION, big=10**30, lone="\ud800") == f"{10**30}\ud800"
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(TemplateError, match="recursion"):
        template.render(QUESTION, deep=nested)
    with pytest.raises(TemplateError, match="not JSON serializable"):
        template.render(QUESTION, what=object())


def test_large_conversation():
    messages = CONVERSATIONS["talk"][0] * 20_000
    assert len(load(DEMO_MODEL).render(messages)) > 80_000 * 20
