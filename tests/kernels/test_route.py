import pytest
import torch
from transformers.models.phimoe.modeling_phimoe import sparsemixer

from penstock.kernels.route import reference, route
from penstock.kernels.route.form import RouteForm, Scoring
from tests import kernel_sets
from tests.kernels.compiled import poison, threads

FORMS = {
    "softmax": RouteForm(4),
    "normalised": RouteForm(2, is_normalised=True),
    "all": RouteForm(24, is_normalised=True, scale=1.5),
    "sigmoid": RouteForm(3, Scoring.SIGMOID, is_normalised=True, scale=2.5),
    "groups": RouteForm(4, num_groups=6, top_groups=2),
    "groups by two": RouteForm(5, Scoring.SIGMOID, is_normalised=True, num_groups=4, top_groups=3, group_best=2),
    "sparse mixer": RouteForm(2, Scoring.SPARSE_MIXER, jitter=0.1),
}


def tensors(num_tokens, num_experts=24):
    generator = torch.Generator().manual_seed(3)
    return (2 * torch.randn(num_tokens, num_experts, generator=generator),
            torch.randn(num_experts, generator=generator) * 0.3)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_values(form, has_bias, kernel_set, monkeypatch):
    if has_bias and form.scoring is not Scoring.SIGMOID:
        has_bias = False
    poison(monkeypatch)
    for num_tokens in (1, 17, kernel_sets.few(kernel_set, 300, 40)):
        logits, bias = tensors(num_tokens)
        expected = reference.route(logits, bias if has_bias else None, form)
        ids, weights = route(logits, bias if has_bias else None, form)
        assert (ids.dtype, weights.dtype) == (torch.int32, torch.float32)
        assert torch.equal(ids, expected[0])
        assert (ids.diff(dim=1) > 0).all()
        torch.testing.assert_close(weights, expected[1], rtol=3e-6, atol=1e-7)


def test_as_torch(kernel_set):
    """Mixtral's routing, and Phi-3.5-MoE's."""
    logits, _ = tensors(50, 8)
    weights, ids = logits.softmax(dim=1).topk(2)
    dense = torch.zeros(50, 8).scatter(1, ids, weights / weights.sum(dim=1, keepdim=True))
    own_ids, own_weights = route(logits, None, RouteForm(2, is_normalised=True))
    torch.testing.assert_close(torch.zeros(50, 8).scatter(1, own_ids.long(), own_weights), dense)

    weights, ids = sparsemixer(logits, jitter_eps=0.01, training=False, top_k=2)
    dense = torch.zeros(50, 8).scatter(1, ids, weights)
    own_ids, own_weights = route(logits, None, RouteForm(2, Scoring.SPARSE_MIXER, jitter=0.01))
    torch.testing.assert_close(torch.zeros(50, 8).scatter(1, own_ids.long(), own_weights), dense)


@pytest.mark.parametrize("name", ["softmax", "sigmoid", "groups", "groups by two", "sparse mixer"])
def test_of_equal_experts_the_first_are_chosen(name, kernel_set):
    form = FORMS[name]
    ids, _ = route(torch.zeros(3, 24), None, form)
    assert ids.tolist() == [list(range(form.top_k))] * 3


def test_a_bias_chooses_and_does_not_weigh(kernel_set):
    logits, bias = torch.zeros(1, 4), torch.tensor([0.0, 0.0, 1.0, 0.0])
    ids, weights = route(logits, bias, RouteForm(1, Scoring.SIGMOID))
    assert (ids.tolist(), weights.tolist()) == ([[2]], [[0.5]])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_token_has_the_same_bits_in_any_batch_and_with_any_threads(form, kernel_set):
    logits, _ = tensors(70)
    alone = [torch.cat(each) for each in zip(*(route(row[None], None, form) for row in logits), strict=True)]
    for count in (1, 2, 3):
        with threads(count):
            assert all(torch.equal(a, b) for a, b in zip(route(logits, None, form), alone, strict=True))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_row_that_is_not_a_number_chooses_experts_that_there_are(form, kernel_set):
    logits, _ = tensors(6)
    expected, _ = route(logits, None, form)
    logits[1] = torch.nan
    logits[2, 3:] = torch.nan
    logits[4] = -torch.inf
    ids, _ = route(logits, None, form)
    assert ids.min() >= 0
    assert ids.max() < 24
    assert torch.equal(ids[[0, 3, 5]], expected[[0, 3, 5]])


def test_no_tokens(kernel_set):
    ids, weights = route(torch.empty(0, 8), None, RouteForm(2))
    assert ids.shape == weights.shape == (0, 2)


def test_errors(kernel_set):
    logits = torch.zeros(3, 8)
    with pytest.raises(ValueError, match=r"route: 9 of 8 experts: expected at least 1, at most all of 4096"):
        route(logits, None, RouteForm(9))
    with pytest.raises(ValueError, match=r"route: 3 experts from 1 of 4 groups, .* do not fit 8 experts"):
        route(logits, None, RouteForm(3, num_groups=4))
    with pytest.raises(ValueError, match=r"route: 1 experts from 1 of 3 groups"):
        route(logits, None, RouteForm(1, num_groups=3))
    with pytest.raises(ValueError, match=r"route: bias has shape \[7\], expected \[8\]"):
        route(logits, torch.zeros(7), RouteForm(1))
    with pytest.raises(ValueError, match=r"route: logits \[3, 8\] has dtype torch.float16"):
        route(logits.half(), None, RouteForm(1))
