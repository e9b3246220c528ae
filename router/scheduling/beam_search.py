"""Beam search: follows the likeliest beginnings of an answer side by side, and returns the best of the answers that
they end in.

The rules, and so the tokens and scores, are those of transformers' `generate(num_beams=...)` (version 5,
generation/utils.py). The search knows nothing of how candidates are computed: it is told the top logprobs behind each
beam, and says which beams go on with which tokens.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge, nlargest
from itertools import islice
from typing import Literal, NamedTuple

from penstock.contract.row_result import TopLogprobs
from penstock.router.scheduling.finish_reason import FinishReason

EarlyStopping = bool | Literal["never"]


@dataclass(frozen=True, slots=True)
class BeamSettings:
    """Says how many beams are followed, and how many answers are returned, at most as many as beams.

    An answer's score is the sum of its logprobs divided by its length to the power of `length_penalty`. With
    `early_stopping` the search ends once it has found as many answers as beams; without it, once no beam can become
    better than they are, if beams end where they are now, or, with "never", wherever they end.
    """

    num_beams: int
    num_answers: int = 1
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False


class Link(NamedTuple):
    """A token of a beam behind those before it. Beams share the links of the tokens that they have in common."""

    token_id: int
    logprob: float
    before: "Link | None"


class Candidate(NamedTuple):
    """A token with which a beam, given by its place, may go on. `score` is the sum of all logprobs up to it."""

    beam: int
    token_id: int
    logprob: float
    score: float


class Beam(NamedTuple):
    """A beginning of an answer; `score` is the sum of its logprobs."""

    score: float = 0.0
    last: Link | None = None

    @property
    def token_ids(self) -> list[int]:
        """Its tokens, the first one first."""
        return [link.token_id for link in links(self.last)]


def links(last: Link | None) -> list[Link]:
    """Returns the links up to the last one, the first one first."""
    found: list[Link] = []
    while last is not None:
        found.append(last)
        last = last.before
    return found[::-1]


class Hypothesis(NamedTuple):
    """An answer that has ended, with its score and the reason for its end."""

    score: float
    last: Link
    finish_reason: FinishReason

    def found(self) -> "FoundAnswer":
        """Returns it with its tokens one after the other."""
        all_links = links(self.last)
        return FoundAnswer(tuple(link.token_id for link in all_links), tuple(link.logprob for link in all_links),
                           self.score, self.finish_reason)


class FoundAnswer(NamedTuple):
    """One of the answers that a search has found, the logprobs of its tokens, and its score."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    score: float
    finish_reason: FinishReason


def ways_on(going: Sequence[Candidate], num_beams: int) -> tuple[list[int], list[tuple[Candidate, bool]]]:
    """Returns the places of the beams that end, of so many, and those that go on, in their order, each with whether it
    is a fork: the best candidate of a beam goes on in its place, and its others are forks beside it."""
    best = {each.beam: each for each in reversed(going)}
    return ([place for place in range(num_beams) if place not in best],
            [(each, each is not best[each.beam]) for each in going])


def end_tokens(
    stop_token_ids: Collection[int], eos_token_ids: Collection[int], ignore_eos: bool, has_grammar: bool
) -> frozenset[int]:
    """Returns the tokens that end an answer: the end of a grammar is told by one of the model's in any case."""
    return frozenset(stop_token_ids).union(() if ignore_eos and not has_grammar else eos_token_ids)


def num_candidates(num_beams: int, num_end_tokens: int) -> int:
    """Returns how many of the likeliest tokens behind each beam a step needs, where so many different tokens end an
    answer: if all of those are among them, enough are left to go on with."""
    return num_beams * max(2, 1 + num_end_tokens)


def _candidates(place: int, beam: Beam, top: TopLogprobs) -> Iterator[Candidate]:
    """Makes the candidates of a beam one by one, the best one first, for few of many are asked for."""
    return (Candidate(place, token_id, logprob, beam.score + logprob) for token_id, logprob in top)


class BeamSearch:
    """Usage: in each step `choose` candidates of the logprobs behind all `beams`, then `advance` with those that end.

    `num_end_tokens` is the number of different tokens that end an answer.
    """

    def __init__(self, settings: BeamSettings, max_new_tokens: int, num_end_tokens: int) -> None:
        self._settings = settings
        self._max_new_tokens = max_new_tokens
        self.num_candidates = num_candidates(settings.num_beams, num_end_tokens)
        self.length = 0
        """How many tokens each of the beams has."""
        self.beams: list[Beam] = [Beam()]
        """The likeliest one first."""
        self._finished: list[Hypothesis] = []
        """The best one first."""

    def choose(self, tops: Sequence[TopLogprobs]) -> list[Candidate]:
        """Returns the best candidates, the best one first, by the likeliest tokens behind each of the beams. Among
        equal ones those of the likelier beam come first."""
        behind = [_candidates(place, *each) for place, each in enumerate(zip(self.beams, tops, strict=True))]
        return [*islice(merge(*behind, key=lambda each: -each.score), self.num_candidates)]

    def advance(
        self, candidates: Sequence[Candidate], reasons: Sequence[FinishReason | None]
    ) -> list[Candidate]:
        """Takes in which of the candidates end, and why. Returns those that become the `beams`, in their order; none
        if the search is over."""
        most = self._settings.num_beams
        self.length += 1
        going = [each for each, reason in zip(candidates, reasons, strict=True) if reason is None][:most]
        ended = [self._end(each, reason) for each, reason in zip(candidates[:most], reasons, strict=False)
                 if reason is not None]
        self._finished = nlargest(most, [*self._finished, *ended], key=lambda each: each.score)
        if not going or self._is_over(going[0].score):
            going = []
        self.beams = [Beam(each.score, self._link(each)) for each in going]
        return going

    @property
    def answers(self) -> list[FoundAnswer]:
        """The best answers, the best one first: fewer than were asked for if there are no others."""
        return [each.found() for each in self._finished[:self._settings.num_answers]]

    def _link(self, candidate: Candidate) -> Link:
        return Link(candidate.token_id, candidate.logprob, self.beams[candidate.beam].last)

    def _end(self, candidate: Candidate, reason: FinishReason) -> Hypothesis:
        score = candidate.score / self.length ** self._settings.length_penalty
        return Hypothesis(score, self._link(candidate), reason)

    def _is_over(self, best_score: float) -> bool:
        """Tells whether as many answers were found as there are beams, and the best beam's score is not enough to
        become better than the worst of them."""
        settings = self._settings
        if len(self._finished) < settings.num_beams:
            return False
        if settings.early_stopping is True:
            return True
        at_end = settings.early_stopping == "never" and settings.length_penalty > 0
        length = float(self._max_new_tokens if at_end else self.length)
        return bool(best_score / length ** settings.length_penalty <= self._finished[-1].score)
