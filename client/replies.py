"""The replies that calls return, with the servers' own names. Fields that are not listed here are kept, too."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict


class Reply(BaseModel):
    """The base of all replies and their parts."""

    model_config = ConfigDict(extra="allow")


class WholeReply(Reply):
    """A whole answer. `answer` names it: a call with `answer=` gets the same again."""

    answer: str | None = None


AnyReply = TypeVar("AnyReply", bound=Reply)
AnyWhole = TypeVar("AnyWhole", bound=WholeReply)


class Token(Reply):
    """One token; a mark such as the end's is `special`, and no part of the answer's text."""

    id: int
    text: str
    logprob: float | None = None
    special: bool = False


class Details(Reply):
    """How an answer of TGI's routes came about; the tokens of a stream are in its events instead."""

    finish_reason: str
    generated_tokens: int
    seed: int | None = None
    tokens: list[Token] = []
    top_tokens: list[list[Token]] | None = None


class Generated(WholeReply):
    """A whole answer of TGI's route."""

    generated_text: str
    details: Details | None = None


class GeneratedToken(Reply):
    """An event of a stream of TGI's route; the last has the whole text, and details if they were asked for."""

    index: int
    token: Token
    top_tokens: list[Token] | None = None
    generated_text: str | None = None
    details: Details | None = None


class Usage(Reply):
    """How many tokens prompt and answer had."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Message(Reply):
    """A message of the model, or in a chunk the next part of it."""

    role: str | None = None
    content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ChatChoice(Reply):
    """One of the answers to a conversation."""

    index: int
    message: Message
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class ChatCompletion(WholeReply):
    """All answers to a conversation."""

    id: str = ""
    model: str
    created: int
    choices: list[ChatChoice]
    usage: Usage | None = None


class ChunkChoice(Reply):
    """The next part of one of the answers to a conversation."""

    index: int
    delta: Message
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class ChatChunk(Reply):
    """An event of a chat's stream; one without choices has the usage of all."""

    id: str = ""
    model: str
    created: int
    choices: list[ChunkChoice]
    usage: Usage | None = None


class CompletionChoice(Reply):
    """One of the answers to a prompt, or what comes next of it."""

    index: int
    text: str
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class Completion(WholeReply):
    """All answers to prompts, or an event of their stream."""

    id: str = ""
    model: str
    created: int
    choices: list[CompletionChoice]
    usage: Usage | None = None
