"""A model's chat template: from the messages of a conversation to a prompt, as transformers would write it."""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from penstock.router.chat import files, past_thoughts, system_places
from penstock.router.chat.renderer import NUM_PROCESSES, Compiled, Renderers
from penstock.router.chat.system_places import Kind
from penstock.router.errors import TemplateError
from penstock.system.daemon_threads import DaemonThreads

log = logging.getLogger(__name__)

Message = dict[str, Any]

FOR_TOOLS = "tool_use"
"""The name of the template that is used with tools, if a model has one of this name."""
_TESTS_NULL = re.compile(r"""'assistant' and \w+(?:\.content|\['content'\]) is none\b""")
"""Templates, such as DeepSeek R1's, that tell an answer with calls by its content, which OpenAI's clients send as null.
transformers has dropped what is null since its fifth version, by which these fail."""
_CUT = "THIS_ANSWER_CONTINUES_HERE"
"""Stands behind the last message while it is rendered. A word, so that no template's escaping changes it, and as long
as transformers' own, for templates that measure the message.
"""


class GivenTo(NamedTuple):
    """Names the processes and the thread that render a template which is none of theirs, and what they know of it."""

    renderers: Renderers
    thread: DaemonThreads
    compiled: Compiled


class ChatTemplate:
    """Renders conversations in processes of their own, as many at once as there are."""

    def __init__(
        self, templates: Mapping[str, str], special_tokens: Mapping[str, str], given: GivenTo | None = None
    ) -> None:
        """Takes sources by name; of several, the one called `default` is used unless another is asked for.

        One that can't be compiled is logged, and refuses every conversation. The processes of others render one that
        is `given` to them.
        """
        self.special_tokens = dict(special_tokens)
        self._templates = dict(templates)
        self._names = frozenset(templates)
        self._tests_null = {name for name, source in templates.items() if _TESTS_NULL.search(source)}
        self._is_given = given is not None
        self._renderers = Renderers(dict(templates)) if given is None else given.renderers
        self._thread = DaemonThreads(NUM_PROCESSES, "chat-template") if given is None else given.thread
        self._compiled = self._compile() if given is None else given.compiled
        self._keeps_places: dict[tuple[Kind, str], bool] = {}

    @classmethod
    def load(cls, model_dir: Path, tokenizer_config_path: Path | None = None) -> Self | None:
        """Loads the templates of a model; None if it has none. A TokenizerError names a file that is damaged.

        `tokenizer_config_path` goes before the files of `model_dir`.
        """
        found = files.read(model_dir, tokenizer_config_path)
        return cls(found.templates, found.special_tokens) if found.templates else None

    @property
    def names(self) -> frozenset[str]:
        """The names of its templates."""
        return self._names

    def source(self, chat_template: str | None = None) -> str:
        """Returns the source of the template of this name, or else of the one that is used with tools; TemplateError if
        there is none."""
        return self._templates[self._choose(chat_template, [])]

    def reads(self, variable: str, chat_template: str | None = None) -> bool:
        """Tells whether the template that `source` returns reads the variable, and so does something with it by itself.

        One for tools reads `tools`, whatever it looks like.
        """
        name = self._choose(chat_template, [])
        return variable in self._compiled.variables.get(name, ()) or (variable == "tools" and name == FOR_TOOLS)

    def knows_role(self, role: str, chat_template: str | None = None) -> bool:
        """Tells whether the template that `source` returns tells messages of this role from others."""
        return role in self._compiled.roles.get(self._choose(chat_template, []), ())

    async def render_async(self, messages: Sequence[Message], /, **options: Any) -> str:
        """Renders as `render` does, without holding up the event loop."""
        work = partial(self.render, messages, **options)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def render(
        self, messages: Sequence[Message], /, *, tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True, continue_final_message: bool = False, chat_template: str | None = None,
        **variables: Any,
    ) -> str:
        """Renders the prompt. TemplateError if the template refuses the conversation or does not come to an end,
        RouterError if the processes that render are lost.

        `chat_template` names one of several. `variables` are the template's own, such as `documents`; they may stand in
        for special tokens. With `continue_final_message` the prompt ends where the content of the last message ends.
        """
        name = self._choose(chat_template, tools)
        tests_null = name in self._tests_null
        messages = [_normal(message, tests_null) for message in messages]
        if continue_final_message:
            add_generation_prompt = False
            messages, content = _marked(messages)
        text = self._renderers.render(name, {
            "documents": None, **self.special_tokens, **variables, "messages": messages, "tools": tools,
            "add_generation_prompt": add_generation_prompt}, self._templates[name] if self._is_given else None)
        return _cut(text, content) if continue_final_message else text

    async def keeps_places(self, kind: Kind, chat_template: str | None, tools: list[dict[str, Any]] | None) -> bool:
        """Tells whether the template writes messages of this kind where they stand. One that refuses them does not."""
        key = kind, self._choose(chat_template, tools)
        if key not in self._keeps_places:
            try:
                prompt = await self.render_async(system_places.probe(kind), tools=tools, chat_template=key[1])
                self._keeps_places[key] = system_places.keeps_places(kind, prompt)
            except TemplateError:
                self._keeps_places[key] = False
        return self._keeps_places[key]

    def close(self) -> None:
        """Ends the threads and processes that render, if they are its own."""
        if self._is_given:
            return
        self._thread.close()
        self._renderers.close()

    def _choose(self, name: str | None, tools: list[dict[str, Any]] | None) -> str:
        if name is None:
            name = FOR_TOOLS if tools is not None and FOR_TOOLS in self._names else files.DEFAULT
        if name not in self._names:
            raise TemplateError(
                f"template not found: there is none called {name!r}, but {sorted(self._names)}", "chat_template")
        return name

    def _compile(self) -> Compiled:
        try:
            compiled = self._renderers.compile()
        except TemplateError as error:
            compiled = Compiled({}, {}, dict.fromkeys(self._names, str(error)))
        for name, cause in compiled.errors.items():
            log.error("the chat template %r can't be used: %s", name, cause)
        return compiled


def _normal(message: Message, tests_null: bool) -> Message:
    """Drops fields that are null, which templates would print, and puts the reasoning under the names that they read.
    A message with calls and no content has null where the template tests for that."""
    present = {key: value for key, value in message.items() if value is not None}
    if tests_null and "tool_calls" in present and "content" not in present:
        present["content"] = None
    thoughts = next((present[key] for key in past_thoughts.NAMES if key in present), None)
    return present if thoughts is None else {"thinking": thoughts, **present, "reasoning_content": thoughts}


def _marked(messages: list[Message]) -> tuple[list[Message], str]:
    """Returns the messages with `_CUT` and a space behind the last one's text, and that text."""
    content = messages[-1].get("content") if messages else None
    if isinstance(content, str):
        return [*messages[:-1], {**messages[-1], "content": content + _CUT + " "}], content
    parts = content if isinstance(content, list) else []
    texts = [index for index, part in enumerate(parts) if isinstance(part, dict) and "text" in part]
    if not texts:
        raise TemplateError("the last message has no text that could be continued")
    last = parts[texts[-1]]
    marked = [*parts[:texts[-1]], {**last, "text": last["text"] + _CUT + " "}, *parts[texts[-1] + 1:]]
    return [*messages[:-1], {**messages[-1], "content": marked}], last["text"]


def _cut(rendered: str, content: str) -> str:
    """Returns the text before the mark, whose space tells whether the template keeps the space around a message."""
    before, mark, after = rendered.rpartition(_CUT)
    if not mark or content.strip() not in before:
        raise TemplateError("the last message can't be continued, because the template does not write it as it is")
    before = before.replace(_CUT + " ", "").replace(_CUT, "")  # where the message is written more than once
    return before if after.startswith(" ") else before.rstrip()
