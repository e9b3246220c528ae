"""How models mark the text in which they think before they answer: a table, a row for each way, which of them a chat
template teaches, and whether a prompt has opened it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class ThinkingFormat:
    """One way to think: `begin` thoughts `end` answer."""

    name: str
    models: str
    """Those that think so, for people."""
    taught_by: re.Pattern[str]
    """A pattern that is found in the templates of models that think so."""
    begin: str
    end: str
    wraps: tuple[tuple[str, str], ...] = ()
    """Texts that may stand around the answer, behind the thinking alone, and are no part of it."""
    aliases: tuple[str, ...] = ()
    has_channels: bool = False
    """Whether all of an answer is messages in channels, of which the thinking is one."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which it can be asked for."""
        return self.name, *self.aliases

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks that are text for who reads an answer, also where they are special tokens."""
        inner = re.findall(r"<\|\w+\|>", self.begin + self.end) if self.has_channels else ()
        return (*inner, "<|constrain|>") if self.has_channels else (self.begin, self.end)


_ANSWER, _RESPONSE = ("<answer>", "</answer>"), ("<response>", "</response>")

FORMATS = (
    ThinkingFormat(
        "openai_gptoss", "gpt-oss", re.compile(r"<\|channel\|>analysis<\|message\|>"),
        begin="<|channel|>analysis<|message|>", end="<|end|><|start|>assistant", aliases=("gpt_oss", "harmony"),
        has_channels=True),
    ThinkingFormat(
        "seed_oss", "Seed-OSS", re.compile("<seed:think>"), begin="<seed:think>", end="</seed:think>"),
    ThinkingFormat(
        "minimax_m3", "MiniMax M3", re.compile("<mm:think>"), begin="<mm:think>", end="</mm:think>"),
    ThinkingFormat(
        "cohere", "Command A, Command R7B", re.compile(r"<\|START_THINKING\|>"), begin="<|START_THINKING|>",
        end="<|END_THINKING|>", aliases=("cohere_command3", "cohere_command4", "command_a")),
    ThinkingFormat(
        "mistral", "Magistral, Ministral 3", re.compile(r"\[THINK\]"), begin="[THINK]", end="[/THINK]",
        aliases=("magistral",)),
    ThinkingFormat(
        "kimi", "Kimi-VL and Kimi 1.5", re.compile("◁think▷"), begin="◁think▷", end="◁/think▷"),
    ThinkingFormat(
        "apertus", "Apertus", re.compile(r"<\|inner_prefix\|>"), begin="<|inner_prefix|>", end="<|inner_suffix|>"),
    ThinkingFormat(
        "hunyuan_v3", "Hunyuan 3", re.compile(r"'<think\{\}>'"), begin="<think:opensource>",
        end="</think:opensource>"),
    ThinkingFormat(
        "granite", "Granite 3.2", re.compile("Here is my thought process:"), begin="Here is my thought process:",
        end="Here is my response:"),
    ThinkingFormat(
        "hunyuan_a13b", "Hunyuan A13B", re.compile(r"</think>(?:\\n|\s)*<answer>"), begin="<think>", end="</think>",
        wraps=(_ANSWER,)),
    ThinkingFormat(
        "ernie45", "ERNIE 4.5", re.compile(r"</think>(?:\\n|\s)*<response>"), begin="<think>", end="</think>",
        wraps=(_RESPONSE,)),
    ThinkingFormat(
        "granite33", "Granite 3.3", re.compile("<think></think>.{1,80}<response></response>"), begin="<think>",
        end="</think>", wraps=(_RESPONSE,)),
    ThinkingFormat(
        "gemma4", "Gemma 4", re.compile(r"<\|channel>thought"), begin="<|channel>thought", end="<channel|>"),
    ThinkingFormat(
        "deepseek_r1", "DeepSeek R1 and V3, Qwen3, GLM 4.5, Kimi K2, MiniMax M2, Nemotron, and most others",
        re.compile("</think>"), begin="<think>", end="</think>",
        aliases=("deepseek_v3", "qwen3", "glm45", "kimi_k2", "minimax_m2", "nemotron", "nemotron_v3", "step3",
                 "step3p5", "holo2", "olmo3", "ernie45_think", "think")),
)
NAMES = tuple(name for each in FORMATS for name in each.names)
"""The names by which a format can be asked for."""


@lru_cache
def taught_format(template: str) -> ThinkingFormat | None:
    """Returns the format that a template teaches, by its source; None if it is none of the known ones."""
    return next((each for each in FORMATS if each.taught_by.search(template)), None)


def named_format(name: str) -> ThinkingFormat:
    """Returns the format of this name."""
    return next(each for each in FORMATS if name in each.names)


class Place(Enum):
    """Where a prompt ends."""

    BEFORE = auto()
    """Before the answer, which may think first."""
    WITHIN = auto()
    """In the thinking, which the prompt has opened."""
    BEHIND = auto()
    """Behind the thinking, which the prompt has closed, or in the answer."""


def place(form: ThinkingFormat, prompt: str, messages: Sequence[dict[str, Any]]) -> Place:
    """Returns where the prompt that was made of these messages ends."""
    prompt = prompt.rstrip()
    last = messages[-1]
    begun = last.get("content") if last["role"] == "assistant" and "tool_calls" not in last else None
    if isinstance(begun, str) and begun.strip() and prompt.endswith(begun.rstrip()):
        is_within = begun.rfind(form.begin) > begun.rfind(form.end)
        return Place.WITHIN if is_within else Place.BEHIND
    if prompt.endswith(form.begin.rstrip()):
        return Place.WITHIN
    return Place.BEHIND if prompt.endswith(form.end) and not form.has_channels else Place.BEFORE
