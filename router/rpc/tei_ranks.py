"""The ranks of texts that come one by one."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from penstock.protos import tei_pb2 as pb
from penstock.router.api.http.measures import Measures
from penstock.router.api.tei.scores import rerank
from penstock.router.errors import EmptyText, TooManyTexts, ValidationError
from penstock.router.generation.asking import Asking
from penstock.router.pooling.scores import ranked
from penstock.router.rpc import tei_wire
from penstock.router.rpc.tei_answers import Replied

MOST_TEXTS = 1 << 16
"""The most texts of a stream: their ranks are one message."""


@dataclass(slots=True)
class Ranks:
    """Collects the scores of the texts of a stream, in their order; those that are sent back have no more than
    `most_characters`."""

    most_characters: int
    is_raw: bool = False
    returns_text: bool = False
    texts: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    measures: list[Measures] = field(default_factory=list)
    num_texts: int = 0
    num_characters: int = 0

    async def noting(self, requests: AsyncIterator[pb.RerankStreamRequest]) -> AsyncIterator[pb.RerankStreamRequest]:
        """Yields the requests, the first of which says for all of them what is sent back."""
        async for request in requests:
            if not self.num_texts:
                self.is_raw, self.returns_text = request.raw_scores, request.return_text
            self.num_texts += 1
            if self.num_texts > MOST_TEXTS:
                raise TooManyTexts(self.num_texts, MOST_TEXTS, "text")
            if self.returns_text:
                self._keep(request.text)
            yield request

    def _keep(self, text: str) -> None:
        self.num_characters += len(text)
        if self.num_characters > self.most_characters:
            raise ValidationError(f"`return_text` is for texts of <= {self.most_characters} characters in all. "
                                  f"Given: {self.num_characters}")
        self.texts.append(text)

    async def answer(self, asking: Asking, request: pb.RerankStreamRequest) -> tuple[float, Measures]:
        """Returns the score of one text, and what it cost."""
        with asking:
            told = await rerank(asking, tei_wire.decode_rerank_stream(request, self.is_raw))
            return told.content[0]["score"], told.measures

    async def add(self, scored: tuple[float, Measures]) -> None:
        """Takes the score of the next text."""
        self.scores.append(scored[0])
        self.measures.append(scored[1])

    def replied(self) -> Replied:
        """Returns the ranks of all texts, the best first. Raises EmptyText if none came."""
        if not self.scores:
            raise EmptyText("text")
        measures = Measures.joined(self.measures)
        texts = self.texts if self.returns_text else [None] * len(self.scores)
        ranks = [pb.Rank(index=place, text=texts[place], score=self.scores[place]) for place in ranked(self.scores)]
        return Replied(pb.RerankResponse(ranks=ranks, metadata=tei_wire.encode_measures(measures)), measures)
