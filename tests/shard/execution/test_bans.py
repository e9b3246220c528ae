"""Which tokens bad words and allowed ids leave, beside transformers' way to ban words."""

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers import NoBadWordsLogitsProcessor

from penstock.contract.plan import Plan
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

VOCAB_SIZE = 40
DEVICE = Device(dispatch.device())
WATERMARK = Watermark(gamma=0.3, delta=9.0)
SINGLE, PAIR, TRIPLE, OTHER_PAIR = (5,), (7, 8), (7, 8, 9), (8, 8)


def banning(*words: Sequence[int], allowed: Sequence[int] = ()) -> Sampling:
    return Sampling(bad_word_ids=tuple(itertools.chain(*words)), bad_word_lengths=tuple(map(len, words)),
                    allowed_ids=tuple(allowed), top_n=VOCAB_SIZE)


def left(
    samplings: Sequence[Sampling], texts: Sequence[list[int]], prompt_length: int = 2, num_drafts: int = 0,
    masks: Masks | None = None
) -> list[list[set[int]]]:
    """The tokens that each sample of each row may be, behind these texts, the last of whose tokens may be guesses."""
    slots = SlotTable(StreamLimits(8, 1 << 10, 8, 1), Bounds(16, 64, 512, VOCAB_SIZE), DEVICE)
    rows = [
        make_row(slot, 0, text, new_blocks=range(4 * slot, 4 * slot + 4), num_drafts=num_drafts,
                 initial_state=initial(prompt_length, sampling, text if sampling.needs_history else ()))
        for slot, (sampling, text) in enumerate(zip(samplings, texts, strict=True))]
    slots.apply(Plan(0, tuple(rows)))
    # Guesses that come true, so that all that is sampled behind them is told.
    logits = torch.stack([
        _preferring(text, len(text) - num_drafts + number) for text in texts for number in range(num_drafts + 1)])
    batch = sampler.prepare(rows, slots, answers=True)
    columns = dict(zip(batch.columns, DEVICE.upload(list(batch.columns.values())), strict=True))
    tensors = sampler.launch(batch, columns, logits.to(DEVICE.device), slots, Stages(Group()), WATERMARK, masks or {})
    results = sampler.read(batch, DEVICE.download(tensors).wait())
    return [[{token for token, _ in top} for top in results[slot].top_logprobs] for slot in range(len(rows))]


def _preferring(text: list[int], position: int) -> torch.Tensor:
    logits = torch.linspace(-1, 1, VOCAB_SIZE)
    if position < len(text):
        logits[text[position]] = 9.0
    return logits


@pytest.mark.parametrize("seed", range(5))
def test_bad_words_are_those_of_transformers(seed: int) -> None:
    """Beside rows that have none, and behind outputs in which words begin again and again. The prompt does not count:
    transformers is told of the output alone."""
    chance = random.Random(seed)
    words = [[chance.randrange(4, 8) for _ in range(chance.randrange(1, 5))] for _ in range(chance.randrange(1, 7))]
    processor = NoBadWordsLogitsProcessor(words)
    outputs = [[chance.randrange(4, 8) for _ in range(length)] for length in range(6)]
    found = left([banning(*words)] * 6 + [Sampling(top_n=VOCAB_SIZE)], [[7, 7, *each] for each in [*outputs, [7]]])
    for output, (allowed,) in zip(outputs, found, strict=False):
        scores = processor(torch.tensor([output], dtype=torch.long), torch.zeros(1, VOCAB_SIZE))
        assert allowed == set(scores[0].isfinite().nonzero()[:, 0].tolist()), (words, output)
    assert found[-1] == [set(range(VOCAB_SIZE))]


def test_a_word_that_begins_in_the_prompt_is_none() -> None:
    everything = set(range(VOCAB_SIZE))
    assert left([banning(PAIR)] * 2, [[3, 7], [3, 7, 7]]) == [[everything], [everything - {8}]]


def test_guesses_are_part_of_the_output() -> None:
    everything = set(range(VOCAB_SIZE))
    sampling = banning(SINGLE, PAIR, TRIPLE, OTHER_PAIR)
    text = [3, 4, 6, 7, 9, 8]
    assert left([sampling], [text], num_drafts=3) == [[
        everything - {5}, everything - {5, 8}, everything - {5}, everything - {5, 8}]]
    alone = [left([sampling], [text[:end]])[0][0] for end in range(3, 7)]
    assert left([sampling], [text], num_drafts=3) == [alone]


def test_allowed_ids_are_a_mask_that_gives_way_to_one_that_comes_late() -> None:
    few = banning(allowed=(3, 33, 39))
    late = {0: _mask(33, 4), 1: _mask(4, 6)}
    assert left([few] * 3 + [banning()], [[3, 4]] * 4, masks=late) == [
        [{33}], [{4, 6}], [{3, 33, 39}], [set(range(VOCAB_SIZE))]]
    assert left([few], [[3, 4, 6]], num_drafts=1) == [[{3, 33, 39}]], "a guess that is not allowed is wrong"


def test_a_bad_word_that_leaves_nothing_does_not_count() -> None:
    assert left([banning(SINGLE, PAIR, allowed=(5,))], [[3, 4]]) == [[{5}]]
    assert left([banning(SINGLE, PAIR, allowed=(5, 8))] * 2, [[3, 4], [3, 4, 7]]) == [[{8}], [{5, 8}]]


def _mask(*token_ids: int) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    bits = np.zeros(64, bool)
    bits[list(token_ids)] = True
    return np.packbits(bits, bitorder="little").view(np.int32)[None]
