import pytest
import torch

from kernels.sample import SampleParameters, reference, sample
from tests.kernels.sampling import columns, draw, gumbel, warp

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
    {"frequency_penalty": 1.5, "do_sample": False},
    {"frequency_penalty": -0.5, "repetition_penalty": 0.8, "top_p": 0.5, "temperature": 2.0},
    {"repetition_penalty": 1.2, "top_k": 5, "typical_p": 0.95},
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


@pytest.mark.parametrize("vocabulary", [13, 64, 1001, 8192])
def test_each_row_against_a_computation_of_its_own(vocabulary, kernel_set):
    logits, rows, histories = mixture(vocabulary)
    ids, logprobs = draw(logits, rows, histories)
    assert (ids.dtype, logprobs.dtype, ids.shape, logprobs.shape) == (torch.int64, torch.float32, (12,), (12,))
    for scores, row, history, chosen, logprob in zip(logits, rows, histories, ids, logprobs, strict=True):
        warped = warp(scores, row, history)
        noise = [gumbel(row["seed"], row["position"], token) for token in range(vocabulary)]
        perturbed = warped + torch.tensor(noise) if row.get("do_sample", True) else warped
        assert chosen == perturbed.argmax()
        expected = torch.log_softmax(warped, dim=0)[chosen]
        hair = 2.0**-24 * abs(expected) * 1e-6 if kernel_set == "reference" else 1e-6
        assert abs(logprob - expected) <= 2.0**-24 * abs(expected) + hair


@pytest.mark.parametrize("vocabulary", [13, 1001, 8191, 8192])
def test_a_row_has_the_same_bits_alone_and_in_any_batch(vocabulary, kernel_set):
    logits, rows, histories = mixture(vocabulary)
    order = torch.randperm(3 * len(rows), generator=torch.Generator().manual_seed(1)) % len(rows)
    ids, logprobs = draw(logits[order], [rows[i] for i in order], [histories[i] for i in order])
    for i, chosen, logprob in zip(order.tolist(), ids, logprobs, strict=True):
        alone = draw(logits[i : i + 1], [rows[i]], [histories[i]])
        assert alone[0].item() == chosen.item()
        assert alone[1].item() == logprob.item()


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


def test_noise_is_a_function_of_seed_position_and_token():
    positions = (0, 1, 2**32 - 1, 77, 12345, 3)
    noise = reference._gumbel(torch.tensor(SEEDS), torch.tensor(positions), 300)
    expected = [
        [gumbel(seed, position, token) for token in range(300)]
        for seed, position in zip(SEEDS, positions, strict=True)
    ]
    assert torch.allclose(noise, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-10)
    assert len(noise.unique()) == noise.numel()


def test_ties_go_to_the_lowest_id_and_cutoffs_keep_all_of_them(kernel_set):
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0, 2.0, 1.0]])
    ids, logprobs = draw(logits, [{"do_sample": False}])
    assert ids.tolist() == [1]
    assert abs(logprobs.item() - torch.log_softmax(logits[0].double(), dim=0)[1]) < 2e-7

    positions = [{"position": position} for position in range(300)]
    for cutoff, kept in (
        ({"top_k": 1}, {1, 3, 4}),
        ({"top_k": 4}, {1, 2, 3, 4, 5}),
        ({"top_p": 0.1}, {1, 3, 4}),
        ({"top_p": 0.8}, {1, 2, 3, 4, 5}),
        ({"typical_p": 0.3}, {1, 3, 4}),
        ({"top_k": 100}, {0, 1, 2, 3, 4, 5}),
    ):
        ids, logprobs = draw(logits.expand(300, -1).contiguous(), [{**cutoff, **row} for row in positions])
        assert set(ids.tolist()) == kept, cutoff
        total = logits[0, sorted(kept)].double().exp().sum().log()
        assert torch.allclose(logprobs.double(), logits[0, ids].double() - total, rtol=1e-7, atol=1e-7)


def test_penalties_of_a_row_in_numbers(kernel_set):
    """3 / 2 and -1 * 2 for what occurred; 0.5 * 2 / 4 and 0.5 * 1 / 4 off for how often."""
    logits = torch.tensor([[3.0, -1.0, 2.0, 1.0]])
    row = {"do_sample": False, "repetition_penalty": 2.0, "frequency_penalty": 0.5}
    ids, logprobs = draw(logits, [row], [[0, 1, 0, 3]])
    scores = torch.tensor([1.5 - 0.25, -2.0 - 0.125, 2.0, 0.5 - 0.125], dtype=torch.float64)
    assert ids.tolist() == [2]
    assert abs(logprobs.item() - torch.log_softmax(scores, dim=0)[2]) < 2e-7


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
    with pytest.raises(ValueError, match=r"sample: do_sample has shape \[3\], expected \[2\]"):
        draw(logits, [{}, {}, {}])
    with pytest.raises(ValueError, match=r"sample: history_offsets has shape \[2\], expected \[3\]"):
        draw(logits, [{}, {}], [[1]])
    with pytest.raises(ValueError, match=r"sample: history_ids are between 1 and 8, the vocabulary has 8 ids"):
        draw(logits, [{"frequency_penalty": 1.0}, {}], [[1, 8], []])
    with pytest.raises(ValueError, match=r"sample: history_ids are between -1 and 1, the vocabulary has 8 ids"):
        draw(logits, [{"repetition_penalty": 2.0}, {}], [[1], [-1]])
    draw(logits, [{}, {}], [[1, 8], []])  # which nothing reads
    parameters = SampleParameters(**columns([{"frequency_penalty": 1.0}, {}]))
    for offsets in ([0, 2, 4], [0, 4, 3], [1, 2, 4]):
        with pytest.raises(ValueError, match=rf"sample: 3 history_ids, but the offsets are \{offsets}"):
            sample(logits, parameters, torch.zeros(3, dtype=torch.int64), torch.tensor(offsets))
