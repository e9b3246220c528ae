from functools import cache

import pytest
import torch

from penstock.kernels.sample import History, reference, sample
from tests.kernel_sets import CHECKED_SETS, few
from tests.kernels.sampling import arguments, draw, gumbel, pack_masks, told
from tests.kernels.warping import warp

SEEDS = (0, 1, 2**63 - 1, -1, -(2**63), 0x123456789ABCDEF)
MIXED = [
    {},
    {"do_sample": False},
    {"temperature": 0.7},
    {"top_k": 10},
    {"top_k": 3, "temperature": 1.5},
    {"top_p": 0.8},
    {"typical_p": 0.6},
    {"top_k": 40, "top_p": 0.9, "typical_p": 0.9, "temperature": 0.8},
    {"repetition_penalty": 1.3},
    {"share_penalty": 1.5, "do_sample": False},
    {"share_penalty": -0.5, "repetition_penalty": 0.8, "top_p": 0.5, "temperature": 2.0},
    {"repetition_penalty": 1.2, "top_k": 5, "typical_p": 0.95},
    {"frequency_penalty": 0.7, "prompt_length": 20, "branch": 3},
    {"presence_penalty": 1.5, "prompt_length": 10, "min_p": 0.05, "branch": 2**32 - 1},
    {"frequency_penalty": -0.3, "presence_penalty": -0.2, "prompt_length": 60, "repetition_penalty": 1.1},
    {"bias": ((3, 4.5), (7, -torch.inf), (3, 0.25), (0, -2.0)), "top_n": 4},
    {"allowed": (1, 4, 7, 9, 12), "top_n": 3, "typical_p": 0.9, "min_p": 0.3},
    {"allowed": (2, 3, 4, 5), "bias": ((3, 3.0), (2, -torch.inf), (12, 90.0)), "do_sample": False, "top_n": 9},
    {"min_p": 0.2, "temperature": 1.6, "top_n": 20},
    {"of_logprobs": True, "do_sample": False, "repetition_penalty": 1.4, "frequency_penalty": 0.3, "top_n": 64},
    {"of_logprobs": True, "do_sample": False, "allowed": (1, 3, 5, 7, 9), "bias": ((3, -1.5), (5, -torch.inf))},
]


def mixture(vocabulary, seed=0):
    """Logits, rows and histories that use everything, and rows with a history but no use for it."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(len(MIXED), vocabulary, generator=generator)
    rows = [{**row, "seed": SEEDS[i % len(SEEDS)], "position": 17 * i} for i, row in enumerate(MIXED)]
    histories = [
        torch.randint(0, vocabulary, (5 * i,), generator=generator).tolist() if i % 4 != 1 else []
        for i in range(len(MIXED))
    ]
    histories[9] = [int(logits[9].argmax())] * 4 + [1]
    return logits, rows, histories


@cache
def noises(seed, position, branch, vocabulary):
    """Computes a row's noise once for all sets of kernels: in Python that takes longer than all else."""
    return torch.tensor([gumbel(seed, position, token, branch) for token in range(vocabulary)])


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("vocabulary", [13, 64, 1001, pytest.param(8192, marks=pytest.mark.slow)])
def test_each_row_against_a_computation_of_its_own(vocabulary, kernel_set):
    step = few(kernel_set, 1, 2)
    logits, rows, histories = (part[vocabulary % step :: step] for part in mixture(vocabulary))
    ids, logprobs = draw(logits.contiguous(), rows, histories)
    assert (ids.dtype, logprobs.dtype, ids.shape, logprobs.shape) == (torch.int64, torch.float32, *2 * ((len(rows),),))
    for scores, row, history, chosen, logprob in zip(logits, rows, histories, ids, logprobs, strict=True):
        warped = warp(scores, row, history)
        noise = noises(row["seed"], row["position"], row.get("branch", 0), vocabulary)
        perturbed = warped + noise if row.get("do_sample", True) else warped
        assert chosen == perturbed.argmax()
        expected = (warped if "of_logprobs" in row else torch.log_softmax(warped, dim=0))[chosen]
        hair = 2.0**-24 * abs(expected) * 1e-6 if kernel_set == "reference" else 1e-6
        assert abs(logprob - expected) <= 2.0**-24 * abs(expected) + hair


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("vocabulary", [13, 1001, 8191, 8192])
def test_a_row_has_the_same_bits_alone_and_in_any_batch(vocabulary, kernel_set):
    logits, rows, histories = mixture(vocabulary)
    count = few(kernel_set, 3 * len(rows), 5)
    order = torch.randperm(3 * len(rows), generator=torch.Generator().manual_seed(1))[:count] % len(rows)
    sampled = sample(*arguments(logits[order], [rows[i] for i in order], [histories[i] for i in order]))
    for i, *results in zip(order.tolist(), sampled.ids, sampled.logprobs, told(sampled.top_logprobs), strict=True):
        alone = sample(*arguments(logits[i : i + 1], [rows[i]], [histories[i]]))
        assert results == [alone.ids.item(), alone.logprobs.item(), *told(alone.top_logprobs)]


@pytest.mark.parametrize("kernel_set", ["reference"], indirect=True)
def test_pieces_of_noise_and_threads_change_no_bits(kernel_set, monkeypatch):
    logits, rows, histories = mixture(8191)
    ids, logprobs = draw(logits, rows, histories)
    monkeypatch.setattr(reference, "NOISE_CHUNK", 1000)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        again = draw(logits, rows, histories)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(again[0], ids)
    assert torch.equal(again[1], logprobs)


def test_noise_is_a_function_of_seed_position_branch_and_token():
    positions = (0, 1, 2**32 - 1, 77, 12345, 3)
    branches = (0, 0, 0, 1, 2**32 - 1, 7)
    noise = reference._gumbel(torch.tensor(SEEDS), torch.tensor(positions), torch.tensor(branches), 300)
    expected = [
        [gumbel(seed, position, token, branch) for token in range(300)]
        for seed, position, branch in zip(SEEDS, positions, branches, strict=True)
    ]
    assert torch.allclose(noise, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-10)
    assert len(noise.unique()) == noise.numel()


def test_ties_go_to_the_lowest_id_and_cutoffs_keep_all_of_them(kernel_set):
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0, 2.0, 1.0]])
    ids, logprobs = draw(logits, [{"do_sample": False}])
    assert ids.tolist() == [1]
    assert abs(logprobs.item() - torch.log_softmax(logits[0].double(), dim=0)[1]) < 2e-7

    count = few(kernel_set, 300, 3)
    positions = [{"position": position} for position in range(count)]
    for cutoff, kept in (
        ({"top_k": 1}, {1, 3, 4}),
        ({"top_k": 4}, {1, 2, 3, 4, 5}),
        ({"top_p": 0.1}, {1, 3, 4}),
        ({"top_p": 0.8}, {1, 2, 3, 4, 5}),
        ({"typical_p": 0.3}, {1, 3, 4}),
        ({"top_k": 100}, {0, 1, 2, 3, 4, 5}),
    ):
        ids, logprobs = draw(logits.expand(count, -1).contiguous(), [{**cutoff, **row} for row in positions])
        assert set(ids.tolist()) == kept if count == 300 else set(ids.tolist()) <= kept, cutoff
        total = logits[0, sorted(kept)].double().exp().sum().log()
        assert torch.allclose(logprobs.double(), logits[0, ids].double() - total, rtol=1e-7, atol=1e-7)


def test_penalties_of_a_row_in_numbers(kernel_set):
    """3 / 2 and -1 * 2 for what occurred; 0.5 * 2 / 4 and 0.5 * 1 / 4 off for how often."""
    logits = torch.tensor([[3.0, -1.0, 2.0, 1.0]])
    row = {"do_sample": False, "repetition_penalty": 2.0, "share_penalty": 0.5}
    ids, logprobs = draw(logits, [row], [[0, 1, 0, 3]])
    scores = torch.tensor([1.5 - 0.25, -2.0 - 0.125, 2.0, 0.5 - 0.125], dtype=torch.float64)
    assert ids.tolist() == [2]
    assert abs(logprobs.item() - torch.log_softmax(scores, dim=0)[2]) < 2e-7


def test_penalties_on_the_output_in_numbers(kernel_set):
    """The prompt is 0, 1, 0: of what follows, 0.5 is off for each time and 0.25 once; a penalty may be a reward."""
    logits = torch.tensor([[3.0, 2.9, 2.0, 1.0]] * 2)
    row = {"do_sample": False, "frequency_penalty": 0.5, "presence_penalty": 0.25, "prompt_length": 3, "top_n": 4}
    reward = {**row, "frequency_penalty": -1.0, "presence_penalty": -2.0}
    sampled = sample(*arguments(logits, [row, reward], [[0, 1, 0, 0, 3, 0]] * 2))
    for top, scores in zip(told(sampled.top_logprobs), ([1.75, 2.9, 2.0, 0.25], [7.0, 2.9, 2.0, 4.0]), strict=True):
        expected = torch.log_softmax(torch.tensor(scores, dtype=torch.float64), dim=0)
        assert [token for token, _ in top] == expected.argsort(descending=True).tolist()
        assert [logprob for _, logprob in top] == pytest.approx([float(expected[token]) for token, _ in top], abs=2e-7)


def test_min_p_keeps_what_equals_its_boundary_and_is_the_last_cutoff(kernel_set):
    """Of the likeliest that typical-p leaves, which is not the likeliest of all."""
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0, 0.5]])
    count = few(kernel_set, 100, 6)
    rows = [{"position": position, "min_p": 1.0} for position in range(count)]
    assert set(draw(logits.expand(count, -1).contiguous(), rows)[0].tolist()) == {1, 2}

    shares, count = torch.tensor([0.4, 0.25, 0.2, 0.1, 0.05]), few(kernel_set, 200, 6)
    for min_p, kept in ((0.0, {1, 2}), (0.6, {1, 2}), (0.9, {1})):
        rows = [{"position": position, "min_p": min_p, "typical_p": 0.4} for position in range(count)]
        assert set(draw(shares.log().expand(count, -1).contiguous(), rows)[0].tolist()) == kept


def test_a_mask_holds_against_every_bias(kernel_set):
    """And bans that leave nothing of it do not count."""
    logits = torch.tensor([[5.0, 1.0, 2.0, 3.0] + [0.0] * 37])
    ban = ((1, -torch.inf), (3, -torch.inf))
    for row, expected in (
        ({"allowed": [1, 3]}, 3),
        ({"allowed": [1, 3], "bias": ((0, 100.0), (1, 9.0))}, 1),
        ({"allowed": [1, 2, 3], "bias": ban}, 2),
        ({"allowed": [1, 3], "bias": ban}, 3),
        ({"allowed": [1, 3], "bias": (*ban, (1, 2.5))}, 1),
        ({"allowed": [40]}, 40),
        ({"bias": [(token, -torch.inf) for token in range(41)]}, 0),
    ):
        for do_sample in (False, True):
            ids, logprobs = draw(logits, [{**row, "do_sample": do_sample, "temperature": 0.01}])
            assert ids.tolist() == [expected]
            assert logprobs.isfinite().all()


@pytest.mark.parametrize("logit", [-torch.inf, torch.nan, torch.inf])
def test_a_mask_holds_where_there_are_no_numbers(logit, kernel_set):
    logits = torch.full((2, 70), logit)
    ids, logprobs = draw(logits, [{"allowed": [66, 69]}, {"allowed": [66, 69], "do_sample": False}])
    assert ids.tolist() == [66, 66]
    assert logprobs.isnan().all()


def test_the_likeliest_tokens_are_those_that_are_left(kernel_set):
    """Ties by id; fewer than asked for where fewer are left, none of what is no number."""
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0, 2.0, -torch.inf] + [-9.0] * 30] * 4)
    logits[3, 3] = torch.nan
    rows = [{"top_n": 4}, {"top_n": 5, "top_k": 1}, {}, {"top_n": 2}]
    top = told(sample(*arguments(logits, rows)).top_logprobs)
    assert [[token for token, _ in row] for row in top] == [[1, 3, 4, 2], [1, 3, 4], [], []]
    assert [logprob for _, logprob in top[1]] == pytest.approx([-1.0986123] * 3, abs=2e-7)
    greedy = [{"top_n": 36, "do_sample": False}, {"top_n": 1, "do_sample": False}]
    assert [len(row) for row in told(sample(*arguments(logits[:2], greedy)).top_logprobs)] == [35, 1]


@pytest.mark.parametrize("kernel_set", ["reference"], indirect=True)
def test_a_row_pays_only_for_what_it_asks(kernel_set, monkeypatch):
    logits, *_ = mixture(64)
    greedy, plain = {"do_sample": False}, {"top_k": 5}

    def fail(*_):
        raise AssertionError("this row needs no such work")

    monkeypatch.setattr(reference, "_keep_mass", fail)
    monkeypatch.setattr(reference, "_counts", fail)
    draw(logits[:2], [plain, greedy], [[1], []])
    monkeypatch.setattr(reference, "_keep_count", fail)
    monkeypatch.setattr(reference, "_gumbel", fail)
    assert torch.equal(draw(logits[:2], [greedy, greedy])[0], logits[:2].argmax(dim=1))
    with pytest.raises(AssertionError, match="no such work"):
        draw(logits[:1], [plain])


@pytest.mark.parametrize("do_sample", [True, False])
def test_what_is_no_number_is_no_probability(do_sample, kernel_set):
    """A model that has lost its way gives tokens of the vocabulary, with NaN for a log-probability."""
    logits = torch.zeros(4, 100)
    logits[0, 70] = torch.inf
    logits[1, 50:] = torch.nan
    logits[2] = torch.nan
    logits[3] = -torch.inf
    ids, logprobs = draw(logits, [{"do_sample": do_sample}] * 4)
    assert ids.tolist() == [70, 50, 0, 0]
    assert logprobs.isnan().all()


def test_no_rows(kernel_set):
    ids, logprobs = draw(torch.empty(0, 64), [])
    assert ids.shape == logprobs.shape == (0,)


def test_errors_name_the_shapes(kernel_set):
    logits = torch.zeros(2, 8)
    with pytest.raises(ValueError, match=r"sample: logits \[2, 8\] has dtype torch.float64, expected torch.float32"):
        draw(logits.double(), [{}, {}])
    with pytest.raises(ValueError, match=r"sample: prompt_length has shape \[3\], expected \[2\]"):
        draw(logits, [{}, {}, {}])
    with pytest.raises(ValueError, match=r"sample: history_offsets has shape \[2\], expected \[3\]"):
        draw(logits, [{}, {}], [[1]])


@pytest.mark.parametrize("kernel_set", CHECKED_SETS, indirect=True)
def test_errors_name_the_values(kernel_set):
    logits = torch.zeros(2, 8)
    with pytest.raises(ValueError, match=r"sample: history_ids are between 1 and 8, the vocabulary has 8 ids"):
        draw(logits, [{"share_penalty": 1.0}, {}], [[1, 8], []])
    with pytest.raises(ValueError, match=r"sample: history_ids are between -1 and 1, the vocabulary has 8 ids"):
        draw(logits, [{"repetition_penalty": 2.0}, {}], [[1], [-1]])
    with pytest.raises(ValueError, match=r"sample: bias_ids are between 0 and 8, the vocabulary has 8 ids"):
        draw(logits, [{"bias": ((0, 1.0),)}, {"bias": ((8, 1.0),)}])
    with pytest.raises(ValueError, match=r"sample: mask 1 of row 1 allows none of 8 tokens"):
        draw(logits, [{"allowed": [3]}, {"allowed": []}])
    with pytest.raises(ValueError, match=r"sample: a row has mask 2, but there are 1 masks"):
        draw(logits, [{"allowed": [3]}, {"mask": 2}])
    draw(logits, [{}, {}], [[1, 8], []])  # which nothing reads


@pytest.mark.parametrize("kernel_set", CHECKED_SETS, indirect=True)
def test_errors_name_offsets_that_do_not_fit(kernel_set):
    logits, parameters, _, biases, masks = arguments(torch.zeros(2, 8), [{"presence_penalty": 1.0}, {}])
    for offsets in ([0, 2, 4], [0, 4, 3], [1, 2, 4]):
        history = History(torch.zeros(3, dtype=torch.int64), torch.tensor(offsets))
        with pytest.raises(ValueError, match=rf"sample: 3 history_ids, but the offsets are \{offsets}"):
            sample(logits, parameters, history, biases, masks)


def test_errors_name_masks_that_do_not_fit(kernel_set):
    logits, parameters, _, biases, _ = arguments(torch.zeros(2, 8), [{"presence_penalty": 1.0}, {}])
    history = History(torch.zeros(3, dtype=torch.int64), torch.tensor([0, 3, 3]))
    with pytest.raises(ValueError, match=r"sample: masks has shape \[1, 2\], expected \[1, 1\]"):
        sample(logits, parameters, history, biases, pack_masks([[1]], 40))
    with pytest.raises(ValueError, match=r"sample: masks \[1, 1\] has dtype torch.int64, expected torch.int32"):
        sample(logits, parameters, history, biases, pack_masks([[1]], 8).long())
