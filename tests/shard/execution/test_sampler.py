"""What a slot's sampling does to the tokens and logprobs of its rows: each case in numbers, beside an untouched row."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult
from penstock.contract.sampling import Sampling
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group
from penstock.shard.communication.stages import Stages
from penstock.shard.devices.device import Device
from penstock.shard.execution import sampler
from penstock.shard.execution.masks import Masks
from penstock.shard.execution.slots import Bounds, SlotTable
from penstock.shard.execution.watermark import Watermark
from tests.shard.step_programs import initial, make_row

VOCAB_SIZE = 50
LOGITS = 2 * torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(9))
ORDER = LOGITS.argsort(descending=True).tolist()
HISTORY = [ORDER[0], 4, ORDER[0]]
DEVICE = Device(dispatch.device())
WATERMARK = Watermark(gamma=0.3, delta=9.0)


def sample(
    *samplings: Sampling, num_sampled: int = 0, prompt_length: int = 3, masks: Masks | None = None
) -> list[RowResult]:
    """Of rows with the same logits, one for each slot, after as many tokens of output."""
    slots = SlotTable(StreamLimits(8, 1 << 10, 8, 1), Bounds(16, 64, 512, VOCAB_SIZE), DEVICE)
    tokens = HISTORY + [4] * num_sampled
    rows = [
        make_row(slot, 0, tokens, new_blocks=range(4 * slot, 4 * slot + 4),
                 initial_state=initial(prompt_length, sampling, tokens))
        for slot, sampling in enumerate(samplings)]
    slots.apply(Plan(0, tuple(rows)))
    logits = LOGITS.expand(len(rows), -1).contiguous().to(DEVICE.device)
    batch = sampler.prepare(rows, slots, answers=True)
    columns = dict(zip(batch.columns, DEVICE.upload(list(batch.columns.values())), strict=True))
    tensors = sampler.launch(batch, columns, logits, slots, Stages(Group()), WATERMARK, masks or {})
    results = sampler.read(batch, DEVICE.download(tensors).wait())
    assert torch.equal(logits.cpu(), LOGITS.expand(len(rows), -1)), "they are read again for the raw logprobs"
    assert slots.last_token[: len(rows)].tolist() == [results[slot].token_ids[0] for slot in range(len(rows))]
    return [results[slot] for slot in range(len(rows))]


def only(sampling: Sampling, **kwargs: int) -> RowResult:
    """The first of two rows; the other one is greedy and not changed by it."""
    result, other = sample(sampling, Sampling(), **kwargs)
    assert other.token_ids == (ORDER[0],)
    assert other.logprobs == pytest.approx([raw(ORDER[0])], abs=1e-6)
    assert (other.top_logprobs, other.prompt_logprobs, other.prompt_top_logprobs) == ((), (), ())
    return result


def raw(token_id: int) -> float:
    return float(torch.log_softmax(LOGITS.double(), dim=0)[token_id])


def test_biases() -> None:
    bias = Sampling(bias_ids=(ORDER[30], ORDER[0]), bias_values=(40, -40))
    assert only(bias).token_ids == (ORDER[30],)
    assert only(bias).logprobs == pytest.approx([0], abs=1e-6)


@pytest.mark.parametrize("num_sampled", [0, 1, 2, 3, 4])
def test_bans_end_when_the_output_is_long_enough(num_sampled: int) -> None:
    """The token sampled after n is number n; with a bias besides."""
    sampling = Sampling(
        banned_ids=tuple(ORDER[:2]), min_tokens=3, bias_ids=(ORDER[1],), bias_values=(1.0,))
    bias = float(LOGITS[ORDER[1]]) + 1 > float(LOGITS[ORDER[0]])
    expected = ORDER[2] if num_sampled < 3 else ORDER[1] if bias else ORDER[0]
    assert only(sampling, num_sampled=num_sampled).token_ids == (expected,)


def test_the_output_is_what_is_behind_the_prompt() -> None:
    sampling = Sampling(presence_penalty=100.0)
    assert only(sampling).token_ids == (ORDER[0],)
    assert only(sampling, prompt_length=2).token_ids == (ORDER[1],)
    assert only(Sampling(frequency_penalty=-50.0), num_sampled=2).token_ids == (4,)


def test_branches_draw_apart() -> None:
    drawn = Sampling(do_sample=True, seed=3, temperature=2.0)
    tokens = [result.token_ids for result in sample(*(replace(drawn, branch=branch) for branch in range(8)))]
    assert len(set(tokens)) > 4
    assert sample(*[drawn] * 8)[0].token_ids == tokens[0]


def test_top_logprobs_are_of_the_scores_that_the_logprob_is_of() -> None:
    result = only(Sampling(do_sample=True, seed=1, top_k=2, top_n=4))
    kept = torch.log_softmax(LOGITS[ORDER[:2]].double(), dim=0).tolist()
    assert [token for token, _ in result.top_logprobs[0]] == ORDER[:2]
    assert [logprob for _, logprob in result.top_logprobs[0]] == pytest.approx(kept, abs=1e-6)
    assert result.logprobs[0] in [logprob for _, logprob in result.top_logprobs[0]]

    result = only(Sampling(do_sample=True, seed=1, top_k=2, temperature=0.5, top_n=4, raw_logprobs=True))
    assert [token for token, _ in result.top_logprobs[0]] == ORDER[:4]
    logprobs = [logprob for _, logprob in result.top_logprobs[0]]
    assert logprobs == pytest.approx([raw(token) for token in ORDER[:4]], abs=1e-6)
    assert result.logprobs == pytest.approx([raw(result.token_ids[0])], abs=1e-6)


def test_rows_that_want_other_logprobs_stand_side_by_side() -> None:
    drawn = Sampling(do_sample=True, seed=5, temperature=1.7, top_n=3)
    rows = sample(drawn, replace(drawn, raw_logprobs=True, top_n=1), Sampling(raw_logprobs=True), drawn)
    assert [len(row.top_logprobs[0]) if row.top_logprobs else 0 for row in rows] == [3, 1, 0, 3]
    assert rows[0] == rows[3]._replace(slot=0)
    assert rows[0].token_ids == rows[1].token_ids
    assert rows[0].logprobs != rows[1].logprobs
    assert rows[2].logprobs == pytest.approx([raw(ORDER[0])], abs=1e-6)


def test_a_watermark_follows_the_last_token() -> None:
    green = set(WATERMARK.green_list(4, VOCAB_SIZE).tolist())
    best = next(token for token in ORDER if token in green)
    result = only(Sampling(watermark=True, raw_logprobs=True, top_n=1), num_sampled=1)
    assert result.token_ids == (best,) != (ORDER[0],)
    assert result.logprobs == pytest.approx([raw(best)], abs=1e-6), "of the logits without it"
    assert result.top_logprobs[0][0][0] == ORDER[0]
    marked = only(Sampling(watermark=True), num_sampled=1)
    assert marked.token_ids == (best,)
    assert marked.logprobs[0] > raw(best)


def test_a_watermark_comes_before_the_penalties() -> None:
    """Which divide a positive score, and multiply a negative one."""
    previous = HISTORY[-1]
    green = WATERMARK.green_list(previous, VOCAB_SIZE)
    logits = LOGITS.double().clone()
    logits[green] += 9.0
    for token in set(HISTORY):
        logits[token] = logits[token] * 1.5 if logits[token] < 0 else logits[token] / 1.5
    result = only(Sampling(watermark=True, repetition_penalty=1.5))
    assert result.token_ids == (int(logits.argmax()),)
    assert result.logprobs == pytest.approx([float(torch.log_softmax(logits, dim=0).max())], abs=1e-5)


def test_masks_are_each_its_own_slots() -> None:
    def mask(*token_ids: int) -> np.ndarray:  # type: ignore[type-arg]
        bits = np.zeros(64, np.uint8)
        bits[list(token_ids)] = 1
        return np.packbits(bits, bitorder="little").view(np.int32)[None]

    rows = sample(*[Sampling()] * 4, masks={3: mask(7, 41), 1: mask(49), 9: mask(1)})
    assert [row.token_ids[0] for row in rows] == [ORDER[0], 49, ORDER[0], min((7, 41), key=ORDER.index)]
