"""Sampling in torch, in float64. A row pays for what its parameters ask: no noise if it is greedy, no sort without
top-p or typical-p."""

import torch
from torch import Tensor
from torch.nn import functional

from kernels.sample.history import check_history
from kernels.sample.parameters import SampleParameters
from kernels.sample.philox import philox

SEGMENTS = 8  # of the vocabulary, for the log-sum-exp
NOISE_CHUNK = 1 << 15  # tokens at a time, so that Philox's words stay in the processor's cache


def sample(
    logits: Tensor, parameters: SampleParameters, history_ids: Tensor, history_offsets: Tensor
) -> tuple[Tensor, Tensor]:
    scores = logits.double()
    _penalise(scores, parameters, history_ids, history_offsets)
    perturbed = scores
    rows = parameters.do_sample.nonzero()[:, 0]
    if len(rows):
        warped = _warp(scores[rows], parameters, rows)
        noise = _gumbel(parameters.seed[rows], parameters.position[rows], warped.shape[1])
        scores[rows] = warped
        perturbed = scores.index_copy(0, rows, warped + noise)
    ids = perturbed.argmax(dim=1)
    chosen = scores.gather(1, ids[:, None])
    return ids, (chosen - _log_sum_exp(scores))[:, 0].float()


def _penalise(scores: Tensor, parameters: SampleParameters, history_ids: Tensor, history_offsets: Tensor) -> None:
    repetition, frequency = parameters.repetition_penalty, parameters.frequency_penalty
    lengths = history_offsets.diff()
    rows = (((repetition != 1) | (frequency != 0)) & (lengths > 0)).nonzero()[:, 0]
    if not len(rows):
        return
    check_history(history_ids, history_offsets, scores.shape[1])
    counts = _counts(history_ids, lengths, scores.shape)[rows]
    before = scores[rows]
    factor = repetition[rows, None].double()
    repeated = torch.where(before < 0, before * factor, before / factor)
    after = torch.where(counts > 0, repeated, before)
    scores[rows] = after - frequency[rows, None].double() * (counts / lengths[rows, None].double())


def _counts(history_ids: Tensor, lengths: Tensor, shape: torch.Size) -> Tensor:
    """How often each id occurs in each row's history: int64 [R, V]."""
    num_rows, vocabulary = shape
    row = torch.arange(num_rows, device=lengths.device).repeat_interleave(lengths)
    return torch.bincount(row * vocabulary + history_ids, minlength=num_rows * vocabulary).view(shape)


def _warp(scores: Tensor, parameters: SampleParameters, rows: Tensor) -> Tensor:
    """Temperature and the cutoffs of these rows' scores [rows, V]; what is cut off becomes -inf."""
    scores = scores / parameters.temperature[rows, None].double()
    top_k, top_p, typical_p = parameters.top_k[rows], parameters.top_p[rows], parameters.typical_p[rows]
    some = ((top_k > 0) & (top_k < scores.shape[1])).nonzero()[:, 0]
    if len(some):
        scores[some] = _keep_count(scores[some], top_k[some])
    some = (top_p < 1).nonzero()[:, 0]
    if len(some):
        part = scores[some]
        scores[some] = _keep_mass(part, -part, top_p[some])
    some = (typical_p < 1).nonzero()[:, 0]
    if len(some):
        part = scores[some]
        scores[some] = _keep_mass(part, _surprise_distance(part), typical_p[some])
    return scores


def _keep_count(scores: Tensor, count: Tensor) -> Tensor:
    largest = scores.topk(int(count.max()), dim=1).values
    return scores.masked_fill(scores < largest.gather(1, count[:, None] - 1), -torch.inf)


def _keep_mass(scores: Tensor, keys: Tensor, mass: Tensor) -> Tensor:
    """Keep the tokens with the smallest keys whose probabilities reach `mass`, and all that equal the last of them."""
    ordered, order = keys.sort(dim=1, stable=True)
    reached = (scores - scores.amax(dim=1, keepdim=True)).exp_().gather(1, order).cumsum(dim=1)
    before = functional.pad(reached[:, :-1], (1, 0))
    count = (before < mass[:, None].double() * reached[:, -1:]).sum(dim=1, keepdim=True)
    return scores.masked_fill(keys > ordered.gather(1, count.clamp_(min=1) - 1), -torch.inf)


def _surprise_distance(scores: Tensor) -> Tensor:
    """How far each token's surprise, -log p, is from the entropy, its expectation."""
    surprise = _log_sum_exp(scores) - scores
    share = (-surprise).exp_()
    entropy = torch.where(share > 0, share * surprise, 0.0).sum(dim=1, keepdim=True)
    return (surprise - entropy).abs_()


def _log_sum_exp(scores: Tensor) -> Tensor:
    """[R, 1]: the sums of SEGMENTS equal parts of the vocabulary, added in a binary tree."""
    num_rows, vocabulary = scores.shape
    top = scores.amax(dim=1, keepdim=True)
    width = -(-vocabulary // SEGMENTS)
    padded = functional.pad(scores - top, (0, SEGMENTS * width - vocabulary), value=-torch.inf)
    sums = padded.exp_().view(num_rows, SEGMENTS, width).sum(dim=2)
    while sums.shape[1] > 1:
        sums = sums[:, 0::2] + sums[:, 1::2]
    return top + sums.log()


def _gumbel(seed: Tensor, position: Tensor, vocabulary: int) -> Tensor:
    """-log(E) for each row and token: float64 [R, V]."""
    low, high, position = (seed & 0xFFFFFFFF)[:, None], ((seed >> 32) & 0xFFFFFFFF)[:, None], position[:, None]
    zero = torch.zeros_like(position)
    noise = torch.empty(len(seed), vocabulary, dtype=torch.float64, device=seed.device)
    num_rows, num_columns = max(1, NOISE_CHUNK // vocabulary), min(NOISE_CHUNK, vocabulary)
    for row in range(0, len(seed), num_rows):
        rows = slice(row, row + num_rows)
        for column in range(0, vocabulary, num_columns):
            part = noise[rows, column : column + num_columns]
            token = torch.arange(column, column + part.shape[1], device=seed.device)[None]
            word = philox((token, position[rows], zero[rows], zero[rows]), (low[rows], high[rows]))[0]
            part.copy_(word).add_(0.5).mul_(2.0**-32).log_().neg_().log_().neg_()
    return noise
