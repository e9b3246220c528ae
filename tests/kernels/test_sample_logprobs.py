"""The scores of a beam search: log-probabilities, then penalties, biases and masks, and nothing normalised again."""

import pytest
import torch
from torch import Tensor

from penstock.kernels.sample import sample
from tests.kernel_sets import few
from tests.kernels.compiled import threads
from tests.kernels.sampling import arguments, draw, told

BEAM = {"of_logprobs": True, "do_sample": False}
WIDTH = 64  # 16 beams with three ends
LARGE = 1 << 15  # of which the compiled kernels share one row among the threads


def made(vocabulary: int, num_rows: int, seed: int = 0) -> Tensor:
    return 4 * torch.randn(num_rows, vocabulary, generator=torch.Generator().manual_seed(seed))


def by_transformers(logits: Tensor, history: list[int], penalty: float, bias: dict[int, float]) -> Tensor:
    """The scores of one row, float32 [V], as its beam search computes them; an end is banned."""
    processors = pytest.importorskip("transformers")  # which machines for kernels alone don't have
    ids = torch.tensor([history])
    scores = torch.log_softmax(logits[None], dim=1)
    for processor in (
            processors.RepetitionPenaltyLogitsProcessor(penalty),
            processors.SequenceBiasLogitsProcessor({(token,): value for token, value in bias.items()}),
            processors.MinNewTokensLengthLogitsProcessor(0, len(history) + 1, [2], device="cpu")):
        scores = processor(ids, scores)
    return scores[0]


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("vocabulary", [100, 5003])
@pytest.mark.parametrize("penalty", [0.8, 1.7])
def test_the_likeliest_have_the_scores_of_transformers(vocabulary, penalty, kernel_set):
    logits = made(vocabulary, few(kernel_set, 6, 2))
    histories = [[int(row.argmax()), 5, 5, number] for number, row in enumerate(logits)]
    bias = {7: 3.5, 11: -2.0}
    row = {**BEAM, "repetition_penalty": penalty, "top_n": WIDTH, "bias": [*bias.items(), (2, -torch.inf)]}
    sampled = sample(*arguments(logits, [row] * len(logits), histories))
    for each, history, top, chosen, logprob in zip(
            logits, histories, told(sampled.top_logprobs), sampled.ids, sampled.logprobs, strict=True):
        expected = by_transformers(each, history, penalty, bias).topk(WIDTH)
        assert [token for token, _ in top] == expected.indices.tolist()
        assert [score for _, score in top] == pytest.approx(expected.values.tolist(), abs=2e-6, rel=1e-6)
        assert (chosen, logprob) == top[0]


def test_as_many_as_the_widest_search_needs(kernel_set):
    logits, width = made(5003, 2), few(kernel_set, 1024, 24)
    sampled = sample(*arguments(logits, [{**BEAM, "top_n": width}, {**BEAM, "top_n": 3}]))
    for top, row, number in zip(told(sampled.top_logprobs), logits, (width, 3), strict=True):
        expected = torch.log_softmax(row, dim=0).topk(number)
        assert [token for token, _ in top] == expected.indices.tolist()
        assert [score for _, score in top] == pytest.approx(expected.values.tolist(), abs=2e-6, rel=1e-6)


def test_a_mask_and_a_ban_leave_scores_as_they_are(kernel_set):
    """What is ruled out gives its share to nobody."""
    logits = made(60, 1)
    expected = torch.log_softmax(logits[0].double(), dim=0)[[3, 40, 59]]
    row = {**BEAM, "allowed": (3, 8, 40, 59), "bias": ((8, -torch.inf),), "top_n": 9}
    (top,) = told(sample(*arguments(logits, [row])).top_logprobs)
    assert dict(top) == pytest.approx(dict(zip((3, 40, 59), expected.tolist(), strict=True)), abs=1e-6)


def test_nobody_normalises_twice(kernel_set):
    """A bias is in the score in full: a score may be above 0."""
    logits = made(60, 1)
    expected = torch.log_softmax(logits[0].double(), dim=0)[9] + 50
    ids, logprobs = draw(logits, [{**BEAM, "bias": ((9, 50.0),)}])
    assert ids.tolist() == [9]
    assert logprobs.tolist() == pytest.approx([float(expected)], rel=1e-6)


def test_tokens_that_nothing_touches_have_the_bits_of_a_row_that_nothing_adjusts(kernel_set):
    logits, width = made(3000, 1), few(kernel_set, WIDTH, 16)
    tokens = logits[0].argsort(descending=True).tolist()
    bias = [(token, -torch.inf) for token in tokens[2:14:2]]
    rows = [{**row, "top_n": width} for row in ({"do_sample": False}, BEAM, {**BEAM, "bias": bias})]
    plain, alone, adjusted = told(sample(*arguments(logits.expand(3, -1).contiguous(), rows)).top_logprobs)
    assert plain == alone
    left = [pair for pair in plain if pair[0] not in dict(bias)]
    assert len(left) == width - len(bias)
    assert adjusted[: len(left)] == left


@pytest.mark.slow_in_interpreter
def test_a_row_has_the_same_bits_whoever_shares_it_out(kernel_set):
    """One row has all threads for its segments; of many, each has one. On a GPU its parts are the vocabulary's."""
    logits, width = made(few(kernel_set, LARGE, 5000), few(kernel_set, 6, 2)), few(kernel_set, WIDTH, 8)
    row = {**BEAM, "repetition_penalty": 1.3, "bias": ((5, 2.0), (9, -torch.inf)), "top_n": width}
    histories = [[int(each.argmax()), 3, number] for number, each in enumerate(logits)]
    rows = [row if number % 2 == 0 else {"repetition_penalty": 1.1} for number in range(len(logits))]
    together = sample(*arguments(logits, rows, histories))
    for count in (1, 3) if kernel_set.startswith("cpu") else (1,):
        with threads(count):
            alone = sample(*arguments(logits[:1], rows[:1], histories[:1]))
        assert told(alone.top_logprobs)[0] == told(together.top_logprobs)[0]
        assert (alone.ids[0], alone.logprobs[0]) == (together.ids[0], together.logprobs[0])


@pytest.mark.parametrize("number", [-torch.inf, torch.nan, torch.inf])
def test_where_there_are_no_numbers_a_row_is_as_without_it(number, kernel_set):
    logits = torch.zeros(2, 70)
    logits[:, 60:] = number
    if number == -torch.inf:
        logits[:] = number
    row = {"do_sample": False, "allowed": (66, 69), "bias": ((66, 1.5),), "top_n": 3}
    sampled = sample(*arguments(logits, [row, {**row, "of_logprobs": True}]))
    assert sampled.ids.tolist() == [66, 66]
    assert sampled.logprobs.isnan().all()
    assert told(sampled.top_logprobs) == [[], []]


def test_a_row_that_is_drawn_does_not_heed_it(kernel_set):
    logits = made(60, 2)
    row = {"repetition_penalty": 1.5, "position": 4, "top_n": 5}
    logits[1] = logits[0]
    sampled = sample(*arguments(logits, [row, {**row, "of_logprobs": True}], [[1, 2, 3]] * 2))
    first, second = told(sampled.top_logprobs)
    assert first == second
    assert sampled.ids[0] == sampled.ids[1]
    assert sampled.logprobs[0] == sampled.logprobs[1]
