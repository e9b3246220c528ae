"""A fleet whose shards make vectors and scores of texts, by a function of their tokens."""

import math
import struct
from collections.abc import Sequence
from dataclasses import replace

from penstock.contract.facts import Facts
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.pooling import POOLED, POOLING, Pooling, Task
from penstock.contract.row import Row
from penstock.contract.row_result import OtherResult, RowResult
from tests.fakes import FACTS, LIMITS, ScriptedFleet

SIZE = 8
EMBEDDER = replace(FACTS, tasks=frozenset({Task.EMBED, Task.EMBED_ALL}), is_whole=True, num_blocks=0, vector_size=SIZE,
                   token_vector_size=SIZE, pooling="mean", context_length=512)
SPARSE = replace(EMBEDDER, tasks=frozenset({Task.EMBED_SPARSE}), vector_size=FACTS.vocab_size, pooling="splade")
RERANKER = replace(EMBEDDER, tasks=frozenset({Task.CLASSIFY}), vector_size=0, pooling="cls", labels=("LABEL_0",),
                   activation="sigmoid")
CLASSIFIER = replace(RERANKER, labels=("good", "bad", "neither"), activation="softmax")

WHOLE_LIMITS = replace(LIMITS, max_input_tokens=LIMITS.max_batch_prefill_tokens)
"""Those of a model whose texts are computed in one step each."""


class PoolingFleet(ScriptedFleet):
    """Computes `numbers` of the tokens of each text, for as many labels or of such a size as its facts tell.

    `asked` has what was asked of each text, in the order in which they came, and `texts` their tokens.
    """

    def __init__(self, facts: Facts = EMBEDDER) -> None:
        super().__init__(lambda row: 0)
        self.facts = facts
        self.asked: list[Pooling] = []
        self.texts: list[Sequence[int]] = []
        self._asked: dict[int, Pooling] = {}
        self._tokens: dict[int, list[int]] = {}

    async def submit(self, plan: Plan) -> None:
        await super().submit(plan)
        for row in plan.rows:
            if row.initial_state is not None:
                self._asked[row.slot] = Pooling.decode(row.initial_state.side_inputs[POOLING])
                self._tokens[row.slot] = []
                self.asked.append(self._asked[row.slot])
                self.texts.append(self._tokens[row.slot])
            self._tokens[row.slot] += row.token_ids

    def _run(self, row: Row, mask: bytes | None) -> RowResult:
        if row.output is not Output.POOL:
            return super()._run(row, mask)
        value = pooled(self._asked[row.slot], self._tokens[row.slot], row.token_ids, self.facts)
        if self.is_nan(row):
            value = packed([math.nan] * (len(value) // 4))
        return RowResult(row.slot, (), (), others=(OtherResult(POOLED, value),))


def numbers(tokens: Sequence[int], count: int) -> list[float]:
    """As many numbers, between -1 and 1, that tell texts apart."""
    return [sum(math.sin((index + 1) * (token + 1)) for token in tokens) / len(tokens) for index in range(count)]


def pooled(asked: Pooling, tokens: Sequence[int], of_row: Sequence[int], facts: Facts) -> bytes:
    """The value of the result of a row, the last of whose text's `tokens` are `of_row`."""
    if asked.task is Task.CLASSIFY:
        return packed(numbers(tokens, len(facts.labels)))
    if asked.task is Task.EMBED_SPARSE:
        indices = sorted(set(tokens))
        return struct.pack(f"<{len(indices)}I", *indices) + packed([1 / (1 + index) for index in indices])
    if asked.task is Task.EMBED_ALL:
        return b"".join(packed(cut(numbers([token], facts.token_vector_size), asked)) for token in of_row)
    return packed(cut(numbers(tokens[asked.skipped:], facts.vector_size), asked))


def cut(vector: list[float], asked: Pooling) -> list[float]:
    """The vector in the form that is asked for."""
    vector = vector[:asked.dimensions or None]
    length = math.hypot(*vector) if asked.normalized else 1.0
    return [number / length for number in vector]


def packed(vector: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(vector)}f", *vector)
