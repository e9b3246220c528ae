"""The families of models by how they write calls of tools: a table, a row for each way. A chat template teaches one of
them, or an operator names one."""

import re
from collections.abc import Iterator
from functools import lru_cache

from penstock.router.chat.tools.call_format import (
    FROM_ID,
    ID,
    KEY,
    KIND,
    NAME,
    NUMBER,
    QUOTED_ID,
    TO_ID,
    WORD,
    CallFormat,
    Keywords,
    Tagged,
)

_CALL = f'{{"name": {NAME}, "arguments": '
_PARAMETERS = f'{{"name": {NAME}, "parameters": '
_TYPED = tuple(f'{{"type": "function", "name": {NAME}, "{key}": ' for key in ("arguments", "parameters"))
_XML = f"<function={WORD}>\n"
_XML_PARAMETERS = Tagged(f"<parameter={KEY}>\n", "</parameter>", pad="\n", after="\n")
_DSML = Tagged(f'<｜DSML｜parameter name="{KEY}" string="{KIND}">', "</｜DSML｜parameter>", after="\n",
               kinds=("true", "false"))

FORMATS = (
    CallFormat(
        "deepseek_v32", "DeepSeek V3.2",
        re.compile("｜DSML｜(?:(?!tool_calls|｜DSML｜)[\\s\\S]){0,4000}function_calls"),
        marker="<｜DSML｜function_calls>", begin="<｜DSML｜function_calls>\n",
        header=f'<｜DSML｜invoke name="{WORD}">\n', arguments=_DSML, close="</｜DSML｜invoke>\n", separator="",
        end="</｜DSML｜function_calls>"),
    CallFormat(
        "deepseek_v4", "DeepSeek V4", re.compile("｜DSML｜"), marker="<｜DSML｜tool_calls>",
        begin="<｜DSML｜tool_calls>\n", header=f'<｜DSML｜invoke name="{WORD}">\n', arguments=_DSML,
        close="</｜DSML｜invoke>\n", separator="", end="</｜DSML｜tool_calls>"),
    CallFormat(
        "deepseek_v3", "DeepSeek V3, R1 and its distillations", re.compile(r"tool▁sep｜>[^`]{0,200}```json"),
        marker="<｜tool▁calls▁begin｜>", begin="<｜tool▁calls▁begin｜>",
        header=f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{WORD}\n```json\n", close="\n```<｜tool▁call▁end｜>",
        separator="\n", end="<｜tool▁calls▁end｜>", other_closes=("<｜tool▁call▁end｜>",)),
    CallFormat(
        "deepseek_v31", "DeepSeek V3.1", re.compile("<｜tool▁calls▁begin｜>"),
        marker="<｜tool▁calls▁begin｜>", begin="<｜tool▁calls▁begin｜>",
        header=f"<｜tool▁call▁begin｜>{WORD}<｜tool▁sep｜>", close="<｜tool▁call▁end｜>", separator="",
        end="<｜tool▁calls▁end｜>"),
    CallFormat(
        "kimi_k2", "Kimi K2", re.compile(r"<\|tool_call_argument_begin\|>"),
        marker="<|tool_calls_section_begin|>", begin="<|tool_calls_section_begin|>",
        header=f"<|tool_call_begin|>{FROM_ID}functions.{WORD}:{NUMBER}{TO_ID}<|tool_call_argument_begin|>",
        other_headers=(f"<|tool_call_begin|>{FROM_ID}{WORD}:{NUMBER}{TO_ID}<|tool_call_argument_begin|>",),
        close="<|tool_call_end|>", separator="", end="<|tool_calls_section_end|>"),
    CallFormat(
        "solar_open", "Solar Open", re.compile(r"<\|tool_call:args\|>"),
        marker="<|tool_calls|>", begin="<|tool_calls|>",
        header=f"<|tool_call:begin|>{ID}<|tool_call:name|>{WORD}<|tool_call:args|>", close="<|tool_call:end|>",
        separator=""),
    CallFormat(
        "minimax_m2", "MiniMax M2", re.compile(r"'<minimax:tool_call>"),
        marker="<minimax:tool_call>", begin="<minimax:tool_call>\n", header=f'<invoke name="{WORD}">\n',
        arguments=Tagged(f'<parameter name="{KEY}">', "</parameter>", after="\n"), close="</invoke>\n", separator="",
        end="</minimax:tool_call>"),
    CallFormat(
        "seed_oss", "Seed-OSS", re.compile("<seed:tool_call>"),
        marker="<seed:tool_call>", begin="<seed:tool_call>\n", header=_XML,
        arguments=Tagged(f"<parameter={KEY}>", "</parameter>", after="\n"), close="</function>\n</seed:tool_call>",
        separator="\n<seed:tool_call>\n", other_closes=("</seed:tool_call>",)),
    CallFormat(
        "qwen3_coder", "Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5",
        re.compile(r"<tool_call>(?:\s|\\n){0,9}<function="), marker="<tool_call>", begin="<tool_call>\n", header=_XML,
        arguments=_XML_PARAMETERS, close="</function>\n</tool_call>", separator="\n<tool_call>\n",
        other_closes=("</tool_call>",), aliases=("qwen3_xml", "step3p5", "nemotron_v3")),
    CallFormat(
        "hunyuan_v3", "Hunyuan 3", re.compile(r"argkey_begin_token"),
        marker="<tool_calls:opensource>", begin="<tool_calls:opensource>\n",
        header=f"<tool_call:opensource>{WORD}<tool_sep:opensource>\n",
        arguments=Tagged(f"<arg_key:opensource>{KEY}</arg_key:opensource>\n<arg_value:opensource>",
                         "</arg_value:opensource>", after="\n"),
        close="</tool_call:opensource>\n", separator="", end="</tool_calls:opensource>"),
    CallFormat(
        "glm47", "GLM 4.7, Laguna S, Spark 2.5",
        re.compile(r"</arg_key>(?:['\" +~]|-\}\}\s{0,40}\{\{-){0,9}<arg_value>"), marker="<tool_call>",
        begin="<tool_call>", header=WORD, arguments=Tagged(f"<arg_key>{KEY}</arg_key><arg_value>", "</arg_value>"),
        close="</tool_call>", separator="<tool_call>"),
    CallFormat(
        "glm45", "GLM 4.5, GLM 4.6, Ling 3", re.compile("<arg_key>"), marker="<tool_call>", begin="<tool_call>",
        header=f"{WORD}\n", arguments=Tagged(f"<arg_key>{KEY}</arg_key>\n<arg_value>", "</arg_value>", after="\n"),
        close="</tool_call>", separator="\n<tool_call>"),
    CallFormat(
        "mistral", "Mistral, up to its third tokenizer", re.compile(r"\[TOOL_CALLS\]\s{0,9}\["),
        marker="[TOOL_CALLS]", begin="[TOOL_CALLS] [", header=_CALL, close="}", separator=", ", end="]",
        other_closes=(f', "id": {QUOTED_ID}}}',), has_short_ids=True),
    CallFormat(
        "mistral", "Mistral Small 3.2", re.compile(r"\[CALL_ID\]"), marker="[TOOL_CALLS]", begin="[TOOL_CALLS]",
        header=f"{WORD}[CALL_ID]{ID}[ARGS]", other_headers=(f"{WORD}[ARGS]", WORD), close="",
        separator="[TOOL_CALLS]", has_short_ids=True),
    CallFormat(
        "mistral", "Ministral 3, Devstral, Magistral", re.compile(r"\[TOOL_CALLS\][\s\S]{0,400}\[ARGS\]"),
        marker="[TOOL_CALLS]", begin="[TOOL_CALLS]", header=f"{WORD}[ARGS]",
        other_headers=(f"{WORD}[CALL_ID]{ID}[ARGS]", WORD), close="", separator="[TOOL_CALLS]", has_short_ids=True),
    CallFormat(
        "hermes", "Hermes, Qwen2.5, Qwen3, QwQ, Granite 4, MiMo, ERNIE 4.5",
        re.compile(r'''<tool_call>(?:\s|\\n|["'] ?\}\}\s?\{\{-? ?["']){0,9}\{\\?"name'''),
        marker="<tool_call>", begin="<tool_call>\n", header=_CALL, close="}\n</tool_call>",
        separator="\n<tool_call>\n", aliases=("qwen25", "ernie45", "granite4")),
    CallFormat(
        "longcat", "LongCat", re.compile("<longcat_tool_call>"), marker="<longcat_tool_call>",
        begin="<longcat_tool_call>\n", header=_CALL, close="}\n</longcat_tool_call>",
        separator="\n<longcat_tool_call>\n"),
    CallFormat(
        "gigachat3", "GigaChat 3.1", re.compile(r"<\|function_call\|>"), marker="<|function_call|>",
        begin="<|function_call|>", header=_CALL, close="}", separator="<|function_call|>"),
    CallFormat(
        "gigachat3", "GigaChat 3", re.compile(r"'function call'"), marker="function call<|role_sep|>",
        begin="function call<|role_sep|>\n", header=_CALL, close="}", separator="function call<|role_sep|>\n"),
    CallFormat(
        "phi4_mini_json", "Phi-4 mini", re.compile(r"<\|/tool_call\|>"), marker="<|tool_call|>",
        begin="<|tool_call|>[", header=_CALL, other_headers=_TYPED, close="}", separator=", ", end="]<|/tool_call|>",
        other_ends=("]",)),
    CallFormat(
        "phi4_mini_json", "Phi-4 mini by vLLM's template, Firefunction 2", re.compile("functools"), marker="functools",
        begin="functools[", header=_CALL, other_headers=_TYPED, close="}", separator=", ", end="]"),
    CallFormat(
        "granite", "Granite 3", re.compile(r"<\|tool_call\|>"), marker="<|tool_call|>", begin="<|tool_call|>[",
        header=_CALL, close="}", separator=", ", end="]"),
    CallFormat(
        "granite", "Granite 3.1, where text marks the calls", re.compile(r"<tool_call>\["), marker="<tool_call>",
        begin="<tool_call>[", header=_CALL, close="}", separator=", ", end="]"),
    CallFormat(
        "cohere", "Command R7B, Command A", re.compile(r"<\|START_ACTION\|>"),
        marker="<|START_ACTION|>", begin="<|START_ACTION|>[\n    ",
        header=f'{{"tool_call_id": "{NUMBER}", "tool_name": {NAME}, "parameters": ',
        other_headers=(f'{{"tool_name": {NAME}, "parameters": ',), close="}", separator=",\n    ",
        end="\n]<|END_ACTION|>", aliases=("cohere_command3", "cohere_command4")),
    CallFormat(
        "cohere", "Command R, Command R+", re.compile(r"Action:(?:\s|\\n){0,9}```json"),
        marker="Action:", begin="Action:\n```json\n[\n    ",
        header=f'{{\n        "tool_name": {NAME},\n        "parameters": ', close="\n    }", separator=",\n    ",
        end="\n]```", other_ends=("]",), aliases=("command_r",)),
    CallFormat(
        "minimax_m1", "MiniMax M1", re.compile(r"<tool_calls>(?:\s|\\n){1,9}\{"), marker="<tool_calls>",
        begin="<tool_calls>\n", header=_CALL, close="}\n", separator="", end="</tool_calls>", aliases=("minimax",)),
    CallFormat(
        "jamba", "Jamba, Hunyuan A13B, Apriel", re.compile(r"<tool_calls>(?:\s|\\n){0,9}\["), marker="<tool_calls>",
        begin="<tool_calls>[", header=_CALL, close="}", separator=", ", end="]</tool_calls>",
        other_ends=("]",), other_closes=(f', "id": {QUOTED_ID}}}',), aliases=("hunyuan_a13b", "apriel")),
    CallFormat(
        "nemotron", "Nemotron Nano 2, Llama-Nemotron", re.compile("<TOOLCALL>"), marker="<TOOLCALL>",
        begin="<TOOLCALL>[", header=_CALL, close="}", separator=", ", end="]</TOOLCALL>", other_ends=("]",)),
    CallFormat(
        "internlm", "InternLM 2.5", re.compile(r"<\|action_start\|>"), marker="<|action_start|>",
        begin="<|action_start|><|plugin|>\n", header=_PARAMETERS, other_headers=(_CALL,), close="}<|action_end|>",
        separator="\n<|action_start|><|plugin|>\n", other_closes=("}",), aliases=("internlm2",)),
    CallFormat(
        "apertus", "Apertus", re.compile(r"<\|tools_prefix\|>"), marker="<|tools_prefix|>",
        begin="<|tools_prefix|>[", header=f"{{{NAME}: ", close="}", separator=", ", end="]<|tools_suffix|>"),
    CallFormat(
        "functionary", "Functionary 3.1", re.compile(r"'<function=|<function=\w+>\{"), marker="<function=",
        begin="<function=", header=f"{WORD}>", close="</function>", separator="<function="),
    CallFormat(
        "functionary", "Functionary 3.2", re.compile(r">>>all"), marker=">>>", begin=">>>", header=f"{WORD}\n",
        close="", separator=">>>", opened=">>>", prose=">>>all\n", aliases=("functionary_v3_2",)),
    CallFormat(
        "lfm2", "LFM2", re.compile(r"<\|tool_(?:call|list)_start\|>|List of tools: \["), marker="<|tool_call_start|>",
        begin="<|tool_call_start|>[", header=f"{WORD}(", arguments=Keywords(), close=")", separator=", ",
        end="]<|tool_call_end|>", other_ends=("]",)),
    CallFormat(
        "olmo3", "OLMo 3", re.compile("<function_calls>"), marker="<function_calls>", begin="<function_calls>",
        header=f"{WORD}(", arguments=Keywords(), close=")", separator="\n", end="</function_calls>"),
    CallFormat(
        "pythonic", "Llama 3.2 and 4, by vLLM's templates",
        re.compile(r"\[func_name1\(|\[get_\w+\(\w+="), marker="", begin="[", other_begins=("<|python_start|>[",),
        header=f"{WORD}(", arguments=Keywords(), close=")", separator=", ", end="]",
        other_ends=("]<|python_end|>",), aliases=("llama4_pythonic", "llama_pythonic")),
    CallFormat(
        "xlam", "xLAM 2", re.compile(r'\[\{\\?"name\\?": "tool_call_name'), marker="", begin="[", header=_CALL,
        close="}", separator=", ", end="]"),
    CallFormat(
        "llama", "Llama 3, Llama 4", re.compile(r'\{\\?"name\\?":[^{}]*\\?"parameters\\?":'), marker="", begin="",
        other_begins=("<|python_tag|>", "<|python_start|>"), header=_PARAMETERS,
        other_headers=(_CALL, *_TYPED), close="}", separator="; ", other_separators=("",),
        end="", other_ends=("<|python_end|>",), aliases=("llama3_json", "llama4_json")),
)

PLAIN = FORMATS[-1]
"""The format for models whose template teaches none of these: the prompt describes it, as TGI's does."""
NAMES = tuple(dict.fromkeys(name for form in FORMATS for name in form.names))
"""The names by which a format can be asked for."""


@lru_cache
def native_format(template: str) -> CallFormat | None:
    """Returns the format that a template teaches, by its source; None if it is none of the known ones."""
    return next(_taught(template, FORMATS), None)


def format_of(template: str, name: str = "auto") -> CallFormat:
    """Returns the format of this name, or else the one that a template teaches, or else the plain one."""
    return (native_format(template) or PLAIN) if name == "auto" else named_format(name, template)


@lru_cache
def named_format(name: str, template: str) -> CallFormat:
    """Returns the format of this name; of several, the one that the template teaches, or else the first."""
    called_so = tuple(form for form in FORMATS if name in form.names)
    return next(_taught(template, called_so), called_so[0])


def _taught(template: str, formats: tuple[CallFormat, ...]) -> Iterator[CallFormat]:
    return (form for form in formats if form.taught_by.search(template))
