"""A recording of all that an engine has yielded for one request, which can be kept and told once more."""

import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Self

import orjson

from penstock.contract.row_result import TopLogprobs
from penstock.router.engine.receiver import Receiver
from penstock.router.scheduling.beam_search import FoundAnswer
from penstock.router.scheduling.confirmed import Other, Pooled, PromptLogprobsPart, Sampled, Verified
from penstock.router.scheduling.finish_reason import FinishReason

_SIZES = struct.Struct("<I")


class Unreadable(ValueError):
    """Raised for bytes that are no recording."""


@dataclass(slots=True)
class Recording:
    """Holds all that the receiver of a request was told, in the order in which another may be told it."""

    hit_tokens: int = 0
    prompt: list[PromptLogprobsPart] = field(default_factory=list)
    others: list[Other] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    tokens: list[Sampled] = field(default_factory=list)
    found: list[FoundAnswer] = field(default_factory=list)
    pooled: list[Pooled] = field(default_factory=list)

    def tell(self, receiver: Receiver, began_at: float) -> FinishReason | None:
        """Tells a receiver all of it, as if it had begun to run at `began_at`. Returns why the answer ends, if it
        does."""
        receiver.begin(began_at, self.hit_tokens)
        for part in self.prompt:
            receiver.take_prompt_logprobs(part)
        for other in self.others:
            receiver.take_other(other)
        if self.drafted:
            receiver.verified(Verified(0, self.drafted, self.accepted))
        for pooled in self.pooled:
            receiver.take_pooled(pooled)
        if self.found:
            receiver.take_answers(self.found)
            return self.found[0].finish_reason
        reason = None
        for sampled in self.tokens:
            reason = receiver.push(sampled)
        return reason

    def encode(self) -> bytes:
        """Returns it as bytes: JSON, and behind it all numbers that must stay as they are to the bit."""
        told = _Writer()
        for part in self.prompt:
            told.floats(part.logprobs)
            told.ints(part.ranks)
            told.tops(part.top_logprobs)
        for other in self.others:
            told.raw(other.value)
        told.ints(token.token_id for token in self.tokens)
        told.floats(token.logprob for token in self.tokens)
        told.tops(token.top_logprobs for token in self.tokens)
        for each in self.found:
            told.ints(each.token_ids)
            told.floats([*each.logprobs, each.score])
        for pooled in self.pooled:
            told.raw(pooled.value)
        content = {
            "hits": self.hit_tokens, "guesses": [self.drafted, self.accepted],
            "prompt": [part.start for part in self.prompt],
            "others": [[other.kind, other.position] for other in self.others],
            "reason": self.tokens[-1].finish_reason if self.tokens else None,
            "found": [each.finish_reason for each in self.found],
            "pooled": [[each.start, each.num_tokens, each.finish_reason] for each in self.pooled]}
        head = orjson.dumps([told.sizes, content])
        return b"".join([_SIZES.pack(len(head)), head, *told.parts])

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Reverses `encode`. Raises Unreadable."""
        try:
            (size,) = _SIZES.unpack_from(data)
            start = _SIZES.size + size
            sizes, content = orjson.loads(data[_SIZES.size:start])
            if start + sum(sizes) != len(data):
                raise ValueError("it has another length")
            ends = accumulate(sizes, initial=start)
            return cls._read(content, _Reader(data[begin:end] for begin, end in pairwise(ends)))
        except (ValueError, TypeError, KeyError, IndexError, StopIteration, struct.error) as error:
            raise Unreadable(f"a kept answer can't be read: {error}") from error

    @classmethod
    def _read(cls, content: dict[str, Any], parts: "_Reader") -> Self:
        drafted, accepted = content["guesses"]
        prompt = [PromptLogprobsPart(0, start, (*parts.floats(),), ranks=(*parts.ints(),),
                                     top_logprobs=(*parts.tops(),)) for start in content["prompt"]]
        others = [Other(0, position, kind, parts.raw()) for kind, position in content["others"]]
        ids, logprobs, tops = parts.ints(), parts.floats(), parts.tops()
        tokens = [Sampled(0, token_id, logprob, None, top)
                  for token_id, logprob, top in zip(ids, logprobs, tops, strict=True)]
        if content["reason"] is not None:
            tokens[-1] = tokens[-1]._replace(finish_reason=FinishReason(content["reason"]))
        found = [FoundAnswer((*parts.ints(),), (*(numbers := parts.floats())[:-1],), numbers[-1], FinishReason(reason))
                 for reason in content["found"]]
        pooled = [Pooled(0, start, number, parts.raw(), None if reason is None else FinishReason(reason))
                  for start, number, reason in content["pooled"]]
        return cls(content["hits"], prompt, others, drafted, accepted, tokens, found, pooled)


class _Writer:
    """Gathers the parts of a recording that are no JSON, in the order in which `_Reader` gives them back."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    @property
    def sizes(self) -> list[int]:
        return [len(part) for part in self.parts]

    def raw(self, value: bytes) -> None:
        self.parts.append(value)

    def ints(self, numbers: Iterable[int]) -> None:
        self.parts.append(array("q", numbers).tobytes())

    def floats(self, numbers: Iterable[float]) -> None:
        self.parts.append(array("d", numbers).tobytes())

    def tops(self, tops: Iterable[TopLogprobs]) -> None:
        tops = [*tops]
        self.ints(map(len, tops))
        self.ints(token_id for top in tops for token_id, _ in top)
        self.floats(logprob for top in tops for _, logprob in top)


class _Reader:
    """Gives the parts back that `_Writer` has gathered."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts

    def raw(self) -> bytes:
        return next(self._parts)

    def ints(self) -> "array[int]":
        return array("q", next(self._parts))

    def floats(self) -> "array[float]":
        return array("d", next(self._parts))

    def tops(self) -> list[TopLogprobs]:
        lengths, ids, logprobs = self.ints(), self.ints(), self.floats()
        pairs = [*zip(ids, logprobs, strict=True)]
        return [(*pairs[start:end],) for start, end in pairwise(accumulate(lengths, initial=0))]
