"""The name of an answer: what was asked, the seed, and what decides every bit. An answer follows from it, so that any
router can go on with one, or repeat it, of which nothing is stored."""

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import orjson

from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.contract.side_inputs import namespace_of
from penstock.router.adapters.registry import Adapter
from penstock.router.engine.request import Request
from penstock.router.errors import AnotherAnswer, RouterError, ValidationError
from penstock.router.generation.seeds import derived_seed, seed_of_key
from penstock.router.generation.service import Service
from penstock.router.generation.spec import GenerationSpec
from penstock.router.generation.tasks import check_task

RESUME, REPEAT, KEY, OUTPUT_IDS = "Last-Event-ID", "penstock-answer", "Idempotency-Key", "penstock-output-ids"
"""The headers of a `Wish`."""
IN_NO_DIGEST = frozenset({"priority", "cache_salt", "deadline_ms"})
"""The parameters that no answer depends on."""
MAX_KEY = 255
"""The most characters of an idempotency key."""
_ID = re.compile(r"([0-9a-f]{16})\.([0-9]{1,20})\.([0-9a-f]{8})\.([0-9]{1,10}(?:-[0-9]{1,10})*)")


class Names(NamedTuple):
    """The names of a wish's parts where the client writes them, for errors to name; HTTP's are headers."""

    resume: str = RESUME
    repeat: str = REPEAT
    key: str = KEY
    output_ids: str = OUTPUT_IDS


HEADERS = Names()


@dataclass(frozen=True, slots=True)
class Wish:
    """The wish of a client beside its request, as it has written it; None for absent parts.

    The answer is to go on behind the event `resume_after`, of whose tokens `output_ids` may be the first; or it is to
    be the answer `repeat`, once more; or one of which each request with this `key` gets the same.
    """

    resume_after: str | None = None
    repeat: str | None = None
    key: str | None = None
    output_ids: str | None = None
    takes_ids: bool = False
    """Whether the client reads the ids of a stream's events, by which it may go on with the answer later."""
    names: Names = HEADERS


@dataclass(frozen=True, slots=True)
class AnswerName:
    """Names the answers to a request: `digest` is of what was asked, `numerics` of what computes it."""

    digest: str
    seed: int
    numerics: str

    def __str__(self) -> str:
        return f"{self.digest}.{self.seed}.{self.numerics}"

    def at(self, counts: Sequence[int]) -> str:
        """Returns the id of the event that is the last of so many of each answer; the last count, that of events that
        belong to no answer, is left out while there are none."""
        return f"{self}.{'-'.join(map(str, counts if counts[-1] else counts[:-1]))}"

    @classmethod
    def parse(cls, text: str, where: str, names: Names) -> tuple[Self, tuple[int, ...]]:
        """Reads an event's id: returns the name and the counts. Raises ValidationError, which names `where` it is."""
        match = _ID.fullmatch(text)
        if match is None or int(match[2]) >= 2**64:
            raise ValidationError(f"`{where}` must be the `id` of an event, or the `{names.repeat}`, of an answer of "
                                  f"this kind of server. Given: `{text:.100}`")
        return cls(match[1], int(match[2]), match[3]), tuple(map(int, match[4].split("-")))


@dataclass(frozen=True, slots=True)
class Identity:
    """Which answers a request gets. `delivered` counts the events of each that the client has, and at last those that
    belong to no answer; `output_ids` are the first tokens of the one answer, which need not be computed again."""

    name: AnswerName
    delivered: tuple[int, ...]
    facts: Facts
    """Those of the kind of group that answers."""
    needs_bits: bool = False
    """Whether another kind must not answer, for the client has named an answer."""
    is_resumed: bool = False
    output_ids: tuple[int, ...] = ()
    wish: Wish = Wish()
    adapter: Adapter | None = None
    """The one that answers, as its files were when the answer was named."""

    @property
    def text(self) -> str:
        """The id of the last event that the client has."""
        return self.name.at(self.delivered)

    def openai_id(self, prefix: str, kind: str = "") -> str:
        """Returns the id that OpenAI's routes give to the answers, another one for each kind. It follows from their
        name, so that it stays the same when a stream goes on; it does not reveal the seed."""
        return f"{prefix}-{hashlib.sha256(f'{self.name}{kind}'.encode()).hexdigest()[:32]}"

    def draws_seed(self, spec: GenerationSpec, request: Request) -> bool:
        """Tells whether the answer to a prompt depends on a seed that was drawn, and not said by the client."""
        wish = self.wish
        is_said = spec.parameters.seed is not None or any((wish.key, wish.repeat, wish.resume_after))
        return request.sampling.do_sample and not is_said

    def seed_of(self, prompt: int) -> int:
        """Returns the seed for a prompt of the request, if that does not have one itself."""
        return derived_seed(self.name.seed, prompt) if prompt else self.name.seed


async def identify(
    service: Service, specs: Sequence[GenerationSpec], wish: Wish, rendering: Sequence[object], *, is_stream: bool,
    flags: Sequence[str] = (),
) -> Identity:
    """Returns which answers a request gets: those that its client wishes for, or new ones.

    The content of the answers' events depends on the request's `rendering`, too, and on the server's `flags`. Raises
    WrongTask if the model generates nothing, ValidationError for a wish that can't be read or does not fit the request,
    and AnotherAnswer if this server would answer otherwise."""
    check_task(service.facts, Task.GENERATE)
    digest, names = _digest(specs, rendering), wish.names
    # More are refused by a rule.
    num_answers = min(sum(spec.num_answers for spec in specs), service.limits.max_concurrent_requests)
    adapter = await _adapter(service, specs)
    kinds = _kinds(service, adapter, flags)
    given = specs[0].parameters.seed
    named = [(where, *AnswerName.parse(text, where, names))
             for where, text in ((names.resume, wish.resume_after), (names.repeat, wish.repeat)) if text is not None]
    for where, name, _ in named:
        _check(where, name, digest, given, [*kinds])
    if any(first != second for (_, first, _), (_, second, _) in pairwise(named)):
        raise ValidationError(f"`{names.resume}` and `{names.repeat}` must name the same answer")
    numerics = named[0][1].numerics if named else next(iter(kinds))
    facts = kinds[numerics]
    if wish.resume_after is None:
        if wish.output_ids is not None:
            raise ValidationError(f"`{names.output_ids}` is for requests with `{names.resume}`")
        if named:
            _check_repeatable(facts, names)
        seed = named[0][1].seed if named else _seed(digest, given, wish.key)
        # What a client may go on with must stay the answer that its ids name, also where its group is lost.
        needs_bits = bool(named) or (wish.takes_ids and is_stream)
        return Identity(AnswerName(digest, seed, numerics), (0,) * (num_answers + 1), facts, needs_bits, wish=wish,
                        adapter=adapter)
    if not is_stream:
        raise ValidationError(f"`{names.resume}` is for requests for a stream; `{names.repeat}` repeats an answer")
    _, name, counts = named[0]
    identity = Identity(name, _delivered(counts, num_answers, names), facts, needs_bits=True, is_resumed=True,
                        output_ids=_output_ids(wish, specs, num_answers), wish=wish,
                        adapter=adapter)
    if len(identity.output_ids) > identity.delivered[0]:
        raise ValidationError(f"`{names.output_ids}` must have no more than the {identity.delivered[0]} tokens that "
                              f"came up to `{names.resume}`. Given: {len(identity.output_ids)}")
    if len(identity.output_ids) < identity.delivered[0] or num_answers > 1:
        _check_repeatable(facts, names)
    return identity


def _check(where: str, name: AnswerName, digest: str, given: int | None, numerics: Sequence[str]) -> None:
    if name.digest != digest:
        raise ValidationError(f"`{where}` names an answer to another request: the body must be the same")
    if given is not None and given != name.seed:
        raise ValidationError(f"`{where}` names an answer with the seed {name.seed}, and `seed` is {given}")
    if name.numerics not in numerics:
        raise AnotherAnswer(f"`{where}` names an answer of another model, or of other kernels, number formats, "
                            f"numbers of shards or flags ({name.numerics}, here {' and '.join(numerics)}): what this "
                            "server would answer differs from it")


def _check_repeatable(facts: Facts, names: Names) -> None:
    if not facts.is_deterministic:
        raise AnotherAnswer("the answers of this server depend on what it computes beside them, so that none can be "
                            f"repeated; a stream goes on if `{names.output_ids}` has all tokens that came of it")


def _delivered(counts: tuple[int, ...], num_answers: int, names: Names) -> tuple[int, ...]:
    if len(counts) not in (num_answers, num_answers + 1):
        raise ValidationError(f"`{names.resume}` must end with a count for each of {num_answers} answers. "
                              f"Given: {len(counts)} counts")
    return counts if len(counts) > num_answers else (*counts, 0)


def _output_ids(wish: Wish, specs: Sequence[GenerationSpec], num_answers: int) -> tuple[int, ...]:
    where = wish.names.output_ids
    if wish.output_ids is None or not wish.output_ids.strip():
        return ()
    if specs[0].wants_prompt_logprobs:
        raise ValidationError(f"`{where}` is not for requests for the prompt's logprobs, which are computed anew")
    if num_answers > 1:
        raise ValidationError(f"`{where}` is for requests for one answer. Asked for: {num_answers}")
    ids = [part.strip() for part in wish.output_ids.split(",")]
    wrong = next((part for part in ids if not re.fullmatch(r"[0-9]{1,10}", part)), None)
    if wrong is not None:
        raise ValidationError(f"`{where}` must be token ids with commas between them. Given: `{wrong:.40}`")
    return tuple(map(int, ids))


def checked_key(key: str | None, where: str) -> str | None:
    """Returns the idempotency key that a client has given. Raises ValidationError, which names `where`, if it is too
    long."""
    if key is not None and len(key) > MAX_KEY:
        raise ValidationError(f"`{where}` must have 1 to {MAX_KEY} characters. Given: {len(key)}")
    return key


def _seed(digest: str, given: int | None, key: str | None) -> int:
    """Returns the seed of a new answer: the request's own, that of the key, or a drawn one."""
    if given is not None:
        return given
    return secrets.randbits(64) if key is None else seed_of_key(key, digest)


def _digest(specs: Sequence[GenerationSpec], rendering: Sequence[object]) -> str:
    """Returns the digest of what was asked, without the seed and `IN_NO_DIGEST`. Parameters that are not set
    are no part of it, so that it is the same for versions of the server that know others."""
    content = [list(rendering), *map(_content, specs)]
    try:
        written = orjson.dumps(content, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError as error:
        raise ValidationError(f"the request can't be written as JSON again: {error}") from error
    return hashlib.sha256(written).hexdigest()[:16]


def _content(spec: GenerationSpec) -> list[Any]:
    ignored = spec.parameters.model_extra or {}
    parameters = spec.parameters.model_dump(exclude_defaults=True, exclude={"seed", *IN_NO_DIGEST, *ignored})
    namespace = namespace_of(spec.side_inputs)
    return [spec.inputs, parameters, spec.n, spec.is_greedy, spec.keep_stop, spec.add_special_tokens,
            spec.has_openai_penalties, spec.raw_logprobs, spec.wants_prompt_logprobs, sorted(spec.shown_ids),
            spec.adapter, *([namespace] if namespace else [])]


async def _adapter(service: Service, specs: Sequence[GenerationSpec]) -> Adapter | None:
    """Returns the adapter of a request; None if it has none, or is refused for it in its turn."""
    if specs[0].adapter is None:
        return None
    try:
        return await service.adapters.get(specs[0].adapter)
    except RouterError:
        return None


def _kinds(service: Service, adapter: Adapter | None, flags: Sequence[str]) -> dict[str, Facts]:
    """Returns the facts of each kind of group, that for new requests first, by a digest of what decides the bits: of
    the model, as it is computed there, of the tokenizer, of the adapter's files, and of the flags."""
    content = [service.tokenizer.digest, *flags, *([adapter.digest] if adapter else [])]
    return {hashlib.sha256("\n".join([*facts.bits, *content]).encode()).hexdigest()[:8]: facts
            for facts in service.engine.kinds}
