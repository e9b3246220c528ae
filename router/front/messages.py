"""The messages between fronts and the engine's process, besides tokens.

A token is told as `(id, token_id, logprob)`, and all else of a request as `(id, what)`, by the number that its front
gave it.
"""

from dataclasses import dataclass

from penstock.contract.facts import Facts
from penstock.router.adapters.source import AdapterSource
from penstock.router.engine.request import Request
from penstock.router.explaining.story import Story
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.limits import Limits
from penstock.router.rates import Use
from penstock.router.scheduling.beam_search import FoundAnswer


@dataclass(frozen=True, slots=True)
class Hello:
    """Is the first thing that a front tells: the permits that it holds, and the adapters that it knows, and knows to be
    removed, from the time when it was connected before."""

    num_permits: int
    added: tuple[AdapterSource, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """The state of the engine that fronts must know: told at first, and when it may have changed."""

    facts: Facts
    kinds: tuple[Facts, ...]
    limits: Limits
    num_slots: int
    is_healthy: bool
    has_group: bool


@dataclass(frozen=True, slots=True)
class KnownAdapters:
    """The adapters that requests may name, and the names that were removed: told at first, and when they change."""

    sources: tuple[AdapterSource, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Submission:
    """Asks for tokens behind the request's prompt and `output_so_far`."""

    id: int
    request: Request
    output_so_far: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Began:
    """A request begins to run, at a time of `time.monotonic`; so much of its prompt was found in the prefix cache."""

    at: float
    hit_tokens: int


@dataclass(frozen=True, slots=True)
class FoundAnswers:
    """All answers of a beam search, with which its request ends."""

    answers: tuple[FoundAnswer, ...]


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Ends a request, unless it has ended."""

    id: int


@dataclass(frozen=True, slots=True)
class ReturnedPermits:
    """Gives permits back."""

    number: int


@dataclass(frozen=True, slots=True)
class Poison:
    """The digest of a request that was given up, which all fronts are to refuse."""

    digest: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """Tells of a request that has ended, whose client may ask any front where its time went."""

    story: Story


@dataclass(frozen=True, slots=True)
class TakePermits:
    """Asks for permits; answered with Overloaded if there are fewer."""

    number: int


@dataclass(frozen=True, slots=True)
class TakeRates:
    """Asks whether a tenant may use so much, which is taken from what it may; answered with TooFast if it may not."""

    use: Use


@dataclass(frozen=True, slots=True)
class Used:
    """Tells of what a tenant has used."""

    use: Use


@dataclass(frozen=True, slots=True)
class CompileGrammar:
    """Asks whether a grammar can be compiled; answered with the error if it can't."""

    spec: GrammarSpec


@dataclass(frozen=True, slots=True)
class FindAdapter:
    """Asks for the adapter of a name."""

    name: str


@dataclass(frozen=True, slots=True)
class AddAdapter:
    """Asks to add an adapter."""

    source: AdapterSource


@dataclass(frozen=True, slots=True)
class RemoveAdapter:
    """Asks to remove the adapter of a name."""

    name: str


@dataclass(frozen=True, slots=True)
class StalledSeconds:
    """Asks for how long no step has come back, though requests run."""


@dataclass(frozen=True, slots=True)
class FindStory:
    """Asks for the story of an owner's request, by its id or that of its answer; answered with None if it is not
    known."""

    id: str
    owner: bytes | None


Ask = TakePermits | TakeRates | CompileGrammar | FindAdapter | AddAdapter | RemoveAdapter | StalledSeconds | FindStory


@dataclass(frozen=True, slots=True)
class Question:
    """Is answered by a `Reply` of the same number."""

    number: int
    ask: Ask


@dataclass(frozen=True, slots=True)
class Reply:
    """Answers a question; `value` is raised if it is an exception."""

    number: int
    value: object
