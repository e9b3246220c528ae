"""Whose manner OpenAI's routes have where TGI's differ from OpenAI's own: OpenAI's, or TGI's to the byte."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.router.api.openai.bodies import OpenAIBody
from penstock.router.api.openai.failures import openai_event, tgi_event
from penstock.router.engine.stream import Ending
from penstock.router.errors import RouterError
from penstock.router.generation.identity import Identity
from penstock.router.generation.service import Service
from penstock.router.generation.spec import TGI_NAMES, FieldNames
from penstock.router.scheduling.finish_reason import FinishReason

_GRAMMARS = ("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
             "ebnf")


@dataclass(frozen=True, slots=True)
class Manner:
    """How answers and failures are told; with `is_tgi` as TGI tells them."""

    is_tgi: bool

    @property
    def flags(self) -> Sequence[str]:
        """The flags that decide what an answer's events tell, as `identify` takes them."""
        return ["tgi_openai_routes"] if self.is_tgi else []

    def answer_id(self, prefix: str, identity: Identity) -> str:
        """Returns the `id` of an answer and all its chunks."""
        return "" if self.is_tgi else identity.openai_id(prefix)

    def reason(self, ending: Ending, has_calls: bool = False) -> str:
        """Returns why an answer has ended; `has_calls` tells whether it calls tools."""
        reason = ending.finish_reason
        if reason is FinishReason.LENGTH:
            return "length"
        if self.is_tgi:
            return "stop" if reason is FinishReason.EOS_TOKEN else reason.value
        return "tool_calls" if has_calls else "stop"

    @property
    def no_reason(self) -> str | None:
        """The finish reason of a completion's chunk before the answer's end."""
        return "" if self.is_tgi else None

    def chunk_reason(self, ending: Ending) -> str:
        """Returns the finish reason of a completion's last chunk: in TGI's manner TGI's own word."""
        return ending.finish_reason.value if self.is_tgi else self.reason(ending)

    def event(self, error: RouterError) -> bytes:
        """Returns the data of the event that tells of a failure, which is the last before `[DONE]`."""
        return (tgi_event if self.is_tgi else openai_event)(error)

    def names(self, body: OpenAIBody, inputs: str, top_n_tokens: str) -> FieldNames:
        """Returns the names of the body's fields for errors, of which the prompt's and that of top logprobs are given.
        """
        if self.is_tgi:
            return TGI_NAMES
        old, new = body.max_tokens, body.max_completion_tokens
        is_new = new is not None and (old is None or new < old)
        return FieldNames(inputs, "max_completion_tokens" if is_new else "max_tokens", top_n_tokens,
                          "truncate_prompt_tokens", grammar_field(body) or "tools", num_beams="n",
                          beam_search="use_beam_search",
                          prompt_logprobs="echo" if body.prompt_logprobs is None else "prompt_logprobs")


def manner_of(service: Service) -> Manner:
    """Returns the manner that the server was told to have."""
    return Manner(service.limits.tgi_openai_routes)


def grammar_field(body: OpenAIBody) -> str | None:
    """Returns the first of the fields that ask for a form of the answer, if any does."""
    return next((name for name in _GRAMMARS if getattr(body, name) is not None), None)
