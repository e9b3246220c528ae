"""The slot table follows orders, and names what is wrong with those that no router may send."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from penstock.contract.block_copy import BlockCopy
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.sampling import Sampling
from penstock.contract.stream_limits import StreamLimits
from penstock.kernels import dispatch
from penstock.kernels.lora import Adapter
from penstock.shard.adapters.store import AdapterStore
from penstock.shard.devices.device import Device
from penstock.shard.execution.slots import Bounds, OrderError, SlotTable
from tests.shard.step_programs import initial, make_row

BOUNDS = Bounds(block_size=4, num_blocks=10, context_length=14, vocab_size=100)
LIMITS = StreamLimits(epoch=1, max_slots=3, max_step_tokens=8, max_blocks_per_slot=4)


@pytest.fixture
def slots() -> SlotTable:
    return SlotTable(LIMITS, BOUNDS, Device(dispatch.device()))


def step(*rows: Row, cleared: tuple[int, ...] = ()) -> Plan:
    return Plan(0, rows, cleared)


def note(slots: SlotTable, token_ids: dict[int, int], *rows: Row, samples: list[int] | None = None) -> None:
    """A token sampled in each of some slots, after what is written; or the samples of `rows`."""
    after = list(rows) or [make_row(slot, slots[slot].num_written - 1, [1]) for slot in token_ids]
    places, tokens = slots.device.upload([slots.places(after), np.array(samples or list(token_ids.values()))])
    slots.note_samples(after, tokens, places)


def histories(slots: SlotTable, *of: int) -> list[list[int]]:
    """All tokens of some slots: those written, and the one that was sampled last."""
    return histories_of(slots, *(
        make_row(slot, slots[slot].num_written + slots[slot].has_sample - 1, from_last_sample=True) for slot in of))


def histories_of(slots: SlotTable, *rows: Row) -> list[list[int]]:
    offsets, ids = slots.history_offsets(rows), slots.histories(rows)
    assert ids.dtype == torch.int64
    return [ids[begin:end].tolist() for begin, end in itertools.pairwise(offsets.tolist())]


def prompt(slot: int = 0, length: int = 5, blocks: tuple[int, ...] = (7, 3), sampling: Sampling | None = None) -> Row:
    return make_row(slot, 0, range(1, length + 1), new_blocks=blocks,
                    initial_state=initial(length, sampling or Sampling(), range(1, length + 1)))


def test_blocks_are_appended_in_order(slots: SlotTable) -> None:
    slots.apply(step(prompt()))
    note(slots, {0: 42})
    slots.apply(step(make_row(0, 5, [6, 7], from_last_sample=True)))
    slots.apply(step(make_row(0, 8, [8], new_blocks=[9])))
    assert slots.blocks[0, :3].tolist() == [7, 3, 9]
    assert slots[0].num_blocks == 3
    assert slots[0].num_written == 9


class OneAdapter(AdapterStore):
    """Adapter 4 is loaded, whatever it is."""

    def get(self, number: int) -> Adapter | None:
        return Adapter((), torch.empty(0), 0) if number == 4 else None


def test_an_adapter_must_be_loaded() -> None:
    slots = SlotTable(LIMITS, BOUNDS, Device(dispatch.device()), OneAdapter(None))
    first = make_row(1, 0, [1], new_blocks=[2], initial_state=initial(1, adapter=4))
    slots.apply(step(first, make_row(0, 0, [1], new_blocks=[3], initial_state=initial(1))))
    assert (slots[0].adapter, slots[1].adapter) == (0, 4)
    with pytest.raises(OrderError, match="slot 2: adapter 3 is not loaded"):
        slots.apply(step(make_row(2, 0, [1], new_blocks=[4], initial_state=initial(1, adapter=3))))


def test_a_recurrent_state_goes_on_where_it_is() -> None:
    slots = SlotTable(LIMITS, replace(BOUNDS, num_states=3), Device(dispatch.device()))
    slots.apply(step(prompt()))
    with pytest.raises(OrderError, match="slot 0: start 4, but its recurrent state has come to position 5"):
        slots.apply(step(make_row(0, 4, [5])))
    with pytest.raises(OrderError, match="max_slots is 3, and 2 have a recurrent state"):
        SlotTable(LIMITS, replace(BOUNDS, num_states=2), slots.device)


def test_a_first_row_resets_its_slot(slots: SlotTable) -> None:
    slots.apply(step(prompt(1, sampling=Sampling(repetition_penalty=1.5))))
    note(slots, {1: 42})
    slots.apply(step(prompt(1, length=2, blocks=(5,))))
    assert (slots[1].num_blocks, slots[1].num_written, slots[1].prompt_length) == (1, 2, 2)
    assert histories(slots, 1) == [[]]
    with pytest.raises(OrderError, match="slot 1: from_last_sample, but nothing has been sampled"):
        slots.apply(step(make_row(1, 2, from_last_sample=True)))


def test_a_sequence_may_start_behind_shared_blocks(slots: SlotTable) -> None:
    slots.apply(step(make_row(0, 4, [5, 6], new_blocks=[7, 3], initial_state=initial(6))))
    assert slots[0].num_written == 6


def test_a_row_may_go_back(slots: SlotTable) -> None:
    slots.apply(step(prompt()))
    slots.apply(step(make_row(0, 3, [9, 9])))
    assert slots[0].num_written == 5


def test_last_tokens_and_histories(slots: SlotTable) -> None:
    penalty = Sampling(share_penalty=0.5)
    slots.apply(step(prompt(0, 2, (0,)), prompt(2, 3, (1,), penalty)))
    note(slots, {2: 50, 0: 60})
    slots.apply(step(make_row(2, 3, from_last_sample=True)))
    note(slots, {2: 51})
    assert slots.last_token.tolist()[:3] == [60, 0, 51]
    assert histories(slots, 0, 2) == [[], [1, 2, 3, 50, 51]]
    assert histories(slots, 2, 0) == [[1, 2, 3, 50, 51], []]
    assert histories(slots, 0) == [[]]
    assert (slots.token_at(2, 4), slots.token_at(0, 1)) == (51, None)


def test_drafts_are_history_and_may_be_taken_back(slots: SlotTable) -> None:
    slots.apply(step(prompt(0, 2, (0, 1, 2), Sampling(share_penalty=0.5))))
    note(slots, {0: 50})
    verify = make_row(0, 2, [50, 51, 52], num_drafts=2)
    slots.apply(step(verify))
    assert histories_of(slots, verify) == [[1, 2, 50], [1, 2, 50, 51], [1, 2, 50, 51, 52]]
    note(slots, {}, verify, samples=[51, 60, 99])
    assert (slots[0].has_sample, slots[0].num_written) == (False, 5)
    with pytest.raises(OrderError, match="slot 0: from_last_sample, but nothing has been sampled in it"):
        slots.apply(step(make_row(0, 4, from_last_sample=True)))
    back = make_row(0, 4, [60])
    slots.apply(step(back))
    assert histories_of(slots, back) == [[1, 2, 50, 51, 60]]
    assert slots.last_token.tolist()[0] == 50, "no sample of a row with drafts is kept"


def test_a_recurrent_state_takes_no_drafts() -> None:
    slots = SlotTable(LIMITS, replace(BOUNDS, num_states=3), Device(dispatch.device()))
    slots.apply(step(prompt()))
    with pytest.raises(OrderError, match="slot 0: 1 drafts, which a recurrent state can't take back"):
        slots.apply(step(make_row(0, 5, [5, 6], num_drafts=1)))


def test_a_draft_model_reads_the_tokens_of_all_slots() -> None:
    slots = SlotTable(LIMITS, replace(BOUNDS, draft_context=6), Device(dispatch.device()))
    slots.apply(step(prompt(0, 2, (0, 1, 2))))
    note(slots, {0: 50})
    assert slots.kept(torch.arange(3)).tolist() == [1, 2, 50]
    asking = make_row(0, 2, from_last_sample=True, num_proposals=2)
    assert slots.history_offsets([asking]).tolist() == [0, 0, 0, 0], "the sampling reads none of them"
    slots.apply(step(asking))
    assert slots[0].num_written == 5
    slots.keep(torch.tensor([3, 4]), torch.tensor([51, 52]))
    note(slots, {}, asking, samples=[51, 60, 99])
    assert slots.kept(torch.arange(5)).tolist() == [1, 2, 50, 51, 52]
    with pytest.raises(OrderError, match="slot 0: from_last_sample, but nothing has been sampled in it"):
        slots.apply(step(make_row(0, 4, from_last_sample=True)))
    with pytest.raises(OrderError, match="slot 0: proposals up to position 6, and the draft model takes 6 tokens"):
        slots.apply(step(make_row(0, 4, [60], num_proposals=2)))


def test_without_a_draft_model_nothing_is_proposed(slots: SlotTable) -> None:
    slots.apply(step(prompt()))
    with pytest.raises(OrderError, match="proposals up to position 6, and the draft model takes 0 tokens"):
        slots.apply(step(make_row(0, 5, [5], num_proposals=1)))


def test_histories_fill_their_places_and_no_more(slots: SlotTable) -> None:
    """Neighbours whose sequences are as long as their blocks, with the token that is no input any more."""
    penalty = Sampling(presence_penalty=0.5)
    small = SlotTable(replace(LIMITS, max_blocks_per_slot=1), BOUNDS, slots.device)
    small.apply(step(prompt(0, 4, (1,), penalty), prompt(1, 3, (2,), penalty)))
    note(small, {1: 30, 0: 40})
    assert histories(small, 0, 1, 0) == [[1, 2, 3, 4, 40], [1, 2, 3, 30], [1, 2, 3, 4, 40]]
    with pytest.raises(OrderError, match="slot 2: 6 history_ids, and 1 blocks and a token sampled after them have 5"):
        small.apply(step(make_row(2, 0, [7], new_blocks=[3], initial_state=initial(1, penalty, range(6)))))
    small.apply(step(prompt(0, 2, (1,), penalty)))
    assert histories(small, 0, 1) == [[1, 2], [1, 2, 3, 30]]


def test_the_seed_keeps_its_64_bits(slots: SlotTable) -> None:
    for seed in (0, 1, 2**63 - 1, 2**63, 2**64 - 1):
        slots.apply(step(prompt(sampling=Sampling(do_sample=True, seed=seed, top_k=5, temperature=0.25))))
        assert slots.sampling["seed"].astype(np.uint64)[0] == seed
    assert (slots.sampling["temperature"][0], slots.sampling["top_k"][0]) == (0.25, 5)


def test_what_reads_history_has_one(slots: SlotTable) -> None:
    for sampling in (Sampling(watermark=True), Sampling(frequency_penalty=0.1), Sampling(presence_penalty=-1.0)):
        slots.apply(step(prompt(sampling=sampling)))
        assert histories(slots, 0) == [[1, 2, 3, 4, 5]]
    slots.apply(step(prompt(sampling=Sampling(min_p=0.5, bias_ids=(7,), bias_values=(0.5,)))))
    assert histories(slots, 0) == [[]]


@pytest.mark.parametrize(("rows", "message"), [
    ([make_row(3, 0, [1], initial_state=initial(1))], r"slot 3 is out of range: max_slots is 3"),
    ([make_row(1, 0, [1])], r"slot 1 has had no first row"),
    ([prompt(blocks=(1, 10))], r"slot 0: new_blocks \[1, 10\] go beyond num_blocks 10"),
    ([prompt(blocks=(1, -1))], r"new_blocks \[1, -1\]"),
    ([prompt(blocks=(1, 2, 3, 4, 5))], r"slot 0: 5 blocks, max_blocks_per_slot is 4"),
    ([prompt(blocks=(1,))], r"slot 0: positions up to 4, but 1 blocks and a context of 14 tokens end at 3"),
    ([make_row(0, 12, [1, 2, 3], new_blocks=[1, 2, 3, 4], initial_state=initial(15))], r"positions up to 14"),
    ([prompt(0, 3, (1,)), prompt(0, 3, (2,))], r"two rows for one slot: \[0, 0\]"),
    ([prompt(0, 5), prompt(1, 4)], r"step 0 has 9 tokens, max_step_tokens is 8"),
    ([make_row(0, 0, [100], new_blocks=[1], initial_state=initial(1))], r"token_ids has 100, the vocabulary has 100"),
    ([make_row(0, 0, [1], new_blocks=[1], initial_state=initial(1, history=[5, 700]))], r"history_ids has 700"),
    ([make_row(0, 0, [1], new_blocks=[1], initial_state=initial(2))], r"after position 0, inside the prompt of 2"),
    ([prompt(sampling=Sampling(bias_ids=(100,), bias_values=(1.0,)))], r"slot 0: bias_ids has 100, the"),
    ([prompt(sampling=Sampling(banned_ids=(3, 101)))], r"slot 0: banned_ids has 101, the vocabulary has 100"),
    ([prompt(sampling=Sampling(top_n=101))], r"slot 0: top_n is 101, the vocabulary has 100 tokens"),
    ([make_row(0, 0, [1], new_blocks=[1], initial_state=initial(1, Sampling(watermark=True)))],
     r"slot 0: a watermark needs history_ids, and there are 0"),
    ([make_row(0, 0, [1], new_blocks=[1], is_sampled=False, initial_state=initial(2), late_mask=True)],
     r"slot 0: a mask comes late for a row that samples nothing"),
    ([make_row(0, 0, [1], new_blocks=[1], initial_state=initial(1), prompt_logprob_ids=[100])],
     r"slot 0: prompt_logprob_ids has 100, the"),
])
def test_what_no_router_may_send(slots: SlotTable, rows: list[Row], message: str) -> None:
    with pytest.raises(OrderError, match=message):
        slots.apply(step(*rows))


@pytest.mark.parametrize(("copies", "message"), [
    ([(3, 10)], "step 0: block_copies name block 10, num_blocks is 10"),
    ([(3, 4), (5, 4)], r"block_copies name the target of one of them again: \[3, 4, 5, 4\]"),
    ([(3, 4), (4, 5)], r"block_copies name the target of one of them again: \[3, 4, 4, 5\]"),
])
def test_copies_that_no_router_may_order(slots: SlotTable, copies: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(OrderError, match=message):
        slots.apply(Plan(0, (prompt(),), (), tuple(BlockCopy(*copy) for copy in copies)))


def test_a_row_must_not_jump_ahead(slots: SlotTable) -> None:
    slots.apply(step(prompt()))
    with pytest.raises(OrderError, match="slot 0: start 6 jumps ahead of position 5"):
        slots.apply(step(make_row(0, 6, [1])))


def test_a_cleared_slot_takes_no_rows(slots: SlotTable) -> None:
    slots.apply(step(prompt()))
    with pytest.raises(OrderError, match="slot 0 has had no first row"):
        slots.apply(step(make_row(0, 5, [1]), cleared=(0,)))
    with pytest.raises(OrderError, match="slot 3 is out of range"):
        slots.apply(step(prompt(), cleared=(3,)))


def test_clear_and_begin_in_one_step(slots: SlotTable) -> None:
    slots.apply(step(prompt()))
    slots.apply(step(prompt(0, 3, (8,)), cleared=(0,)))
    assert slots.blocks[0, 0] == 8
    assert slots[0].num_written == 3
