"""Samples in torch, in float64. A row pays for what its parameters ask: no noise if it is greedy, no sort without
top-p or typical-p."""

import torch
from torch import Tensor
from torch.nn import functional

from penstock.kernels.log_sum_exp import log_sum_exp
from penstock.kernels.sample.parameters import Biases, History, Sampled, SampleParameters
from penstock.kernels.sample.philox import philox
from penstock.kernels.sample.ragged import check_biases, check_history, check_masks, is_penalised, unpack
from penstock.kernels.top_logprobs import find_top_logprobs

NOISE_CHUNK = 1 << 15  # tokens at a time, so that Philox's words stay in the processor's cache


def sample(
    logits: Tensor, parameters: SampleParameters, history: History, biases: Biases, masks: Tensor, top_width: int
) -> Sampled:
    scores = logits.double()
    of_logprobs = _normalise(scores, parameters)
    scores = _adjust(scores, parameters, history, biases, masks)
    perturbed = scores
    rows = parameters.do_sample.nonzero()[:, 0]
    if len(rows):
        warped = _warp(scores[rows], parameters, rows)
        seed, position, branch = parameters.seed[rows], parameters.position[rows], parameters.branch[rows]
        noise = _gumbel(seed, position, branch, warped.shape[1])
        perturbed = scores.index_copy(0, rows, warped + noise)
        scores[rows] = warped
    ids = _allowed_argmax(perturbed, parameters, masks)
    total = log_sum_exp(scores)
    total[of_logprobs] = total[of_logprobs].masked_fill(~total[of_logprobs].isnan(), 0.0)
    logprobs = scores.gather(1, ids[:, None]) - total
    return Sampled(ids, logprobs[:, 0].float(), find_top_logprobs(scores, total, parameters.top_n, top_width))


def _normalise(scores: Tensor, parameters: SampleParameters) -> Tensor:
    """Makes log-probabilities of the scores of rows that are to have them. Returns these rows."""
    rows = (parameters.of_logprobs & ~parameters.do_sample).nonzero()[:, 0]
    rows = rows[scores[rows].amax(dim=1).isfinite()]
    scores[rows] -= log_sum_exp(scores[rows])
    return rows


def _adjust(
    scores: Tensor, parameters: SampleParameters, history: History, biases: Biases, masks: Tensor
) -> Tensor:
    """Returns the scores after penalties, biases and masks."""
    check_biases(biases, scores.shape[1])
    check_masks(parameters, masks, scores.shape[1])
    _penalise(scores, parameters, history)
    if not len(biases.ids):
        return _mask(scores, parameters, masks)
    row = torch.arange(len(scores), device=scores.device).repeat_interleave(biases.offsets.diff())
    adjusted = _mask(scores.index_put((row, biases.ids), biases.values.double(), accumulate=True), parameters, masks)
    is_soft = biases.values > -torch.inf
    soft = (row[is_soft], biases.ids[is_soft]), biases.values[is_soft].double()
    without_bans = _mask(scores.index_put(*soft, accumulate=True), parameters, masks)
    return torch.where((adjusted == -torch.inf).all(dim=1, keepdim=True), without_bans, adjusted)


def _mask(scores: Tensor, parameters: SampleParameters, masks: Tensor) -> Tensor:
    rows = (parameters.mask >= 0).nonzero()[:, 0]
    if len(rows):
        allowed = unpack(masks[parameters.mask[rows]], scores.shape[1])
        scores[rows] = scores[rows].masked_fill(~allowed, -torch.inf)
    return scores


def _allowed_argmax(scores: Tensor, parameters: SampleParameters, masks: Tensor) -> Tensor:
    """Returns each row's largest score's id; where a row is -inf throughout, the lowest id that its mask allows."""
    ids = scores.argmax(dim=1)
    rows = ((parameters.mask >= 0) & (scores == -torch.inf).all(dim=1)).nonzero()[:, 0]
    if len(rows):
        ids[rows] = unpack(masks[parameters.mask[rows]], scores.shape[1]).int().argmax(dim=1)
    return ids


def _penalise(scores: Tensor, parameters: SampleParameters, history: History) -> None:
    rows = is_penalised(parameters, history).nonzero()[:, 0]
    if not len(rows):
        return
    check_history(history, scores.shape[1])
    lengths = history.offsets.diff()
    index = torch.arange(len(history.ids), device=scores.device) - history.offsets[:-1].repeat_interleave(lengths)
    is_output = index >= parameters.prompt_length.repeat_interleave(lengths)
    counts = _counts(history.ids, lengths, scores.shape)[rows]
    row = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)[is_output]
    output_lengths = torch.bincount(row, minlength=len(lengths))
    output = _counts(history.ids[is_output], output_lengths, scores.shape)[rows]

    def column(name: str) -> Tensor:
        values: Tensor = getattr(parameters, name)
        return values[rows, None].double()

    before, factor = scores[rows], column("repetition_penalty")
    repeated = torch.where(before < 0, before * factor, before / factor)
    after = torch.where(counts > 0, repeated, before)
    after = after - column("share_penalty") * (counts / lengths[rows, None].double())
    scores[rows] = after - column("frequency_penalty") * output - column("presence_penalty") * (output > 0)


def _counts(history_ids: Tensor, lengths: Tensor, shape: torch.Size) -> Tensor:
    """Returns how often each id occurs in each row's history: int64 [R, V]."""
    num_rows, vocabulary = shape
    row = torch.arange(num_rows, device=lengths.device).repeat_interleave(lengths)
    return torch.bincount(row * vocabulary + history_ids, minlength=num_rows * vocabulary).view(shape)


def _warp(scores: Tensor, parameters: SampleParameters, rows: Tensor) -> Tensor:
    """Returns these rows' scores [rows, V] after temperature and cutoffs; what is cut off becomes -inf."""
    scores = scores / parameters.temperature[rows, None].double()
    top_k, top_p, typical_p, min_p = (
        getattr(parameters, name)[rows] for name in ("top_k", "top_p", "typical_p", "min_p"))
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
    some = (min_p > 0).nonzero()[:, 0]
    if len(some):
        part = scores[some]
        below_top = part - part.amax(dim=1, keepdim=True)
        scores[some] = part.masked_fill(below_top < min_p[some, None].double().clamp(max=1).log(), -torch.inf)
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
    """Returns how far each token's surprise, -log p, is from the entropy, its expectation."""
    surprise = log_sum_exp(scores) - scores
    share = (-surprise).exp_()
    entropy = torch.where(share > 0, share * surprise, 0.0).sum(dim=1, keepdim=True)
    return (surprise - entropy).abs_()


def _gumbel(seed: Tensor, position: Tensor, branch: Tensor, vocabulary: int) -> Tensor:
    """Returns -log(E) for each row and token: float64 [R, V]."""
    low, high = (seed & 0xFFFFFFFF)[:, None], ((seed >> 32) & 0xFFFFFFFF)[:, None]
    position, branch = position[:, None], branch[:, None]
    zero = torch.zeros_like(position)
    noise = torch.empty(len(seed), vocabulary, dtype=torch.float64, device=seed.device)
    num_rows, num_columns = max(1, NOISE_CHUNK // vocabulary), min(NOISE_CHUNK, vocabulary)
    for row in range(0, len(seed), num_rows):
        rows = slice(row, row + num_rows)
        for column in range(0, vocabulary, num_columns):
            part = noise[rows, column : column + num_columns]
            token = torch.arange(column, column + part.shape[1], device=seed.device)[None]
            word = philox((token, position[rows], branch[rows], zero[rows]), (low[rows], high[rows]))[0]
            part.copy_(word).add_(0.5).mul_(2.0**-32).log_().neg_().log_().neg_()
    return noise
