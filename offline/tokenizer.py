"""The tokenizer of a model, for programs: the few methods of transformers' that they call."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from penstock.offline.chats import render_all
from penstock.offline.event_loop import EventLoop
from penstock.offline.failures import translated
from penstock.router.generation.service import Service

MAX_ID = 1 << 32
"""Below which token ids are."""


class ModelTokenizer:
    """Turns texts and conversations into token ids, as the model's prompts are, and ids into texts."""

    def __init__(self, service: Service, loop: EventLoop) -> None:
        self._service = service
        self._loop = loop

    @property
    def vocab_size(self) -> int:
        """How many token ids the model has."""
        return self._service.facts.vocab_size

    @property
    def eos_token_ids(self) -> list[int]:
        """The tokens that end an answer."""
        return sorted(self._service.facts.eos_token_ids)

    @property
    def eos_token_id(self) -> int | None:
        """That of the tokenizer's own end mark, if it has one, else the first of them."""
        mark = "" if self._service.template is None else self._service.template.special_tokens.get("eos_token", "")
        own = self._service.tokenizer.special_id(mark)
        return next(iter(self.eos_token_ids), None) if own is None else own

    @property
    def all_special_ids(self) -> list[int]:
        """The tokens that are marks for the model, and no text."""
        return sorted(self._service.tokenizer.special_ids)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Returns the token ids of a text."""
        with translated():
            return [*self._loop.run(self._service.tokenizer.encode(text, add_special_tokens))]

    def decode(self, token_ids: int | Sequence[int], skip_special_tokens: bool = False) -> str:
        """Returns the text of token ids, or of a single one."""
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        if wrong := [each for each in ids if not 0 <= each < MAX_ID]:
            raise ValueError(f"`token_ids` must have numbers from 0 to {MAX_ID - 1}. Given: {wrong[0]}")
        special = self._service.tokenizer.special_ids if skip_special_tokens else ()
        return self._service.tokenizer.decode([each for each in ids if each not in special])

    @overload
    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], *, tokenize: Literal[False], add_generation_prompt: bool = ...,
        continue_final_message: bool = ..., tools: Sequence[Mapping[str, Any]] | None = ...,
        chat_template: str | None = ..., **variables: Any,
    ) -> str: ...

    @overload
    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], *, tokenize: Literal[True] = ...,
        add_generation_prompt: bool = ..., continue_final_message: bool = ...,
        tools: Sequence[Mapping[str, Any]] | None = ..., chat_template: str | None = ...,
        **variables: Any,
    ) -> list[int]: ...

    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, Any]], *, tokenize: bool = True, add_generation_prompt: bool = False,
        continue_final_message: bool = False, tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None, **variables: Any,
    ) -> str | list[int]:
        """Returns the prompt of a conversation as token ids, or as text; `LLM.chat` tells how it is made."""
        [text] = render_all(
            self._service, self._loop, [conversation], chat_template, tools, variables,
            add_generation_prompt=add_generation_prompt, continue_final_message=continue_final_message)
        return self.encode(text, add_special_tokens=False) if tokenize else text
