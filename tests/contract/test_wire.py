"""Protobuf in, plain values out; and what a stream is refused for."""

import math
import struct
from dataclasses import fields

import pytest

from penstock.contract import wire
from penstock.contract.facts import Facts
from penstock.contract.pooling import Task
from penstock.contract.row_result import RowResult
from penstock.contract.sampling import Sampling
from penstock.contract.shard_facts import ShardFacts
from penstock.contract.step_result import StepResult
from penstock.protos import shard_pb2
from penstock.shard.serving.checks import check_row
from tests.adapter_inputs import adapter_value


def ids(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def plan(**row: object) -> shard_pb2.Plan:
    return shard_pb2.Plan(step_id=3, rows=[shard_pb2.Row(**{"token_ids": ids(1), **row})])  # type: ignore[arg-type]


def initial_state(**values: object) -> shard_pb2.InitialState:
    """A sampling that is valid but for these values."""
    off = {"temperature": 1, "top_p": 1, "typical_p": 1, "repetition_penalty": 1}
    return shard_pb2.InitialState(sampling=shard_pb2.Sampling(**{**off, **values}))  # type: ignore[arg-type]


def with_side_inputs(**values: bytes) -> shard_pb2.InitialState:
    return shard_pb2.InitialState(sampling=initial_state().sampling, side_inputs=values)


def test_a_row_in_full() -> None:
    values = {
        "do_sample": True, "seed": 2**64 - 1, "branch": 2**32 - 1, "watermark": True, "repetition_penalty": 1.5,
        "share_penalty": -0.5, "frequency_penalty": 0.25, "presence_penalty": -2.0, "min_tokens": 4,
        "temperature": 0.5, "top_k": 7, "top_p": 0.75, "typical_p": 0.25, "min_p": 0.125, "raw_logprobs": True,
        "top_n": 5, "of_logprobs": False}
    sampling = shard_pb2.Sampling(
        **values, bias_ids=ids(8, 9), bias_values=[0.5, -100], banned_ids=ids(2, 70_000),  # type: ignore[arg-type]
        allowed_ids=ids(3), bad_word_ids=ids(4, 5, 6), bad_word_lengths=[1, 2])
    initial_state = shard_pb2.InitialState(sampling=sampling, prompt_length=9, history_ids=ids(4, 2**32 - 1),
                                             side_inputs=adapter_value(6))
    message = shard_pb2.Plan(step_id=3, cleared_slots=[5, 6], rows=[shard_pb2.Row(
        slot=2, start=8, from_last_sample=True, token_ids=ids(1, 70_000), new_blocks=[3, 2],
        output=shard_pb2.SAMPLE, initial_state=initial_state, late_mask=True, prompt_logprob_ids=ids(70_000, 12))])
    step = wire.decode_plan(shard_pb2.Plan.FromString(message.SerializeToString()), 3, check_row)
    row = step.rows[0]
    assert (step.step_id, step.cleared_slots) == (3, (5, 6))
    assert (row.slot, row.start, row.num_inputs, row.end, row.is_sampled) == (2, 8, 3, 11, True)
    assert list(row.token_ids) == [1, 70_000]
    assert list(row.new_blocks) == [3, 2]
    assert row.initial_state is not None
    assert {name: getattr(row.initial_state.sampling, name) for name in values} == values
    assert {each.name for each in fields(Sampling)} - set(values) == {
        "bias_ids", "bias_values", "banned_ids", "allowed_ids", "bad_word_ids", "bad_word_lengths"}
    assert list(row.initial_state.sampling.bias_ids) == [8, 9]
    assert list(row.initial_state.sampling.bias_values) == [0.5, -100]
    assert list(row.initial_state.sampling.banned_ids) == [2, 70_000]
    assert row.late_mask
    assert list(row.prompt_logprob_ids) == [70_000, 12]
    assert row.initial_state.prompt_length == 9
    assert row.initial_state.side_inputs == adapter_value(6)
    assert list(row.initial_state.history_ids) == [4, 2**32 - 1]


def test_a_row_with_nothing_but_its_input() -> None:
    row = wire.decode_plan(plan(token_ids=b"", from_last_sample=True), 3, check_row).rows[0]
    assert row.num_inputs == 1
    assert row.initial_state is None
    assert not row.is_sampled
    assert list(row.new_blocks) == []


def test_proposals_follow_the_inputs() -> None:
    message = plan(token_ids=b"", from_last_sample=True, num_proposals=3, output=shard_pb2.SAMPLE)
    row = wire.decode_plan(message, 3, check_row).rows[0]
    assert (row.num_inputs, row.num_guesses, row.num_samples, row.first_sample, row.drafts) == (4, 3, 4, 1, ())


@pytest.mark.parametrize(("message", "complaint"), [
    (shard_pb2.Plan(step_id=4), r"plan\.step_id is 4, the next one of this stream is 3"),
    (shard_pb2.Plan(step_id=3), r"plan 3 has no rows"),
    (plan(token_ids=b""), r"plan 3, rows\[0\] has no input tokens"),
    (plan(token_ids=b"12345"), r"plan 3, rows\[0\]\.token_ids has 5 bytes, no multiple of 4"),
    (plan(initial_state=shard_pb2.InitialState(history_ids=b"1")),
     r"plan 3, rows\[0\]\.initial_state\.history_ids has 1 bytes"),
    (plan(initial_state=shard_pb2.InitialState()),
     r"plan 3, rows\[0\]\.initial_state\.sampling\.repetition_penalty is 0\.0, it must be above 0"),
    (plan(initial_state=initial_state(temperature=0)), r"\.temperature is 0\.0, it must be above 0"),
    (plan(initial_state=initial_state(top_p=math.nan)), r"\.top_p is nan"),
    (plan(token_ids=ids(1, 2), prompt_logprob_ids=ids(2, 3, 4)),
     r"plan 3, rows\[0\] has 3 prompt_logprob_ids for 2 input tokens"),
    (plan(initial_state=initial_state(min_p=1.5)), r"\.min_p is 1\.5, it must be between 0 and 1"),
    (plan(initial_state=initial_state(min_p=math.nan)), r"\.min_p is nan"),
    (plan(initial_state=initial_state(share_penalty=math.inf)), r"\.share_penalty is inf, it must be finite"),
    (plan(initial_state=initial_state(frequency_penalty=math.nan)), r"\.frequency_penalty is nan"),
    (plan(initial_state=initial_state(presence_penalty=-math.inf)), r"\.presence_penalty is -inf"),
    (plan(initial_state=initial_state(bias_ids=ids(4), bias_values=[math.inf])),
     r"\.bias_values are \[inf\], they must be finite"),
    (plan(initial_state=initial_state(of_logprobs=True, do_sample=True)),
     r"plan 3, rows\[0\]\.initial_state\.sampling\.of_logprobs is true, which it can't be where do_sample is, too"),
    (plan(initial_state=initial_state(bias_ids=ids(4))), r"has 1 bias_ids and 0 values"),
    (plan(initial_state=initial_state(bad_word_ids=ids(4, 5), bad_word_lengths=[1, 2])),
     r"has 2 bad_word_ids, and the lengths of bad words \[1, 2\]"),
    (plan(initial_state=initial_state(bad_word_ids=ids(4), bad_word_lengths=[1, 0])), r"has 1 bad_word_ids, and"),
    (plan(initial_state=with_side_inputs(image=b"1")),
     r"plan 3, rows\[0\]\.initial_state\.side_inputs has 'image', known are 'adapter', 'pooling', 'trace'"),
    (plan(initial_state=with_side_inputs(adapter=b"1")),
     r"\.initial_state\.side_inputs\['adapter'\] has 1 bytes, a number has 4"),
    (plan(token_ids=b"", num_proposals=2, output=shard_pb2.SAMPLE), r"plan 3, rows\[0\] has no input tokens"),
    (plan(token_ids=ids(1, 2), num_proposals=2, num_drafts=1, output=shard_pb2.SAMPLE),
     r"plan 3, rows\[0\]\.num_proposals is 2, in a row with 1 drafts; a token is sampled"),
    (plan(num_proposals=2, late_mask=True, output=shard_pb2.SAMPLE),
     r"plan 3, rows\[0\]\.num_proposals is 2, in a row with 0 drafts and a late mask; a token is sampled"),
    (plan(num_proposals=2), r"plan 3, rows\[0\]\.num_proposals is 2, in a row with 0 drafts; a token is not sampled"),
    (plan(output=3), r"plan 3, rows\[0\]\.output is 3, known are NONE \(0\), SAMPLE \(1\) and POOL \(2\)"),
])
def test_what_a_plan_is_refused_for(message: shard_pb2.Plan, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        wire.decode_plan(message, 3, check_row)


@pytest.mark.parametrize("name", ["max_slots", "max_step_tokens", "max_blocks_per_slot"])
def test_stream_limits_without_room_is_refused(name: str) -> None:
    limits = {"max_slots": 1, "max_step_tokens": 2, "max_blocks_per_slot": 3}
    message = shard_pb2.StreamLimits(epoch=9, **limits)
    assert wire.decode_stream_limits(message).max_blocks_per_slot == 3
    setattr(message, name, 0)
    with pytest.raises(ValueError, match=rf"stream_limits\.{name} is 0, it must be at least 1"):
        wire.decode_stream_limits(message)


def test_results() -> None:
    result = StepResult(7, (RowResult(1, (5,), (-0.1,)), RowResult(0, (6,), (-2.0,))), forward_ns=12, sample_ns=3,
                        draft_ns=4)
    message = shard_pb2.StepResult.FromString(wire.encode_result(result).SerializeToString())
    assert (list(message.slots), list(message.token_ids), list(message.rows)) == ([1, 0], [5, 6], [])
    assert list(message.logprobs) == pytest.approx([-0.1, -2.0], rel=1e-7)
    assert (message.step_id, message.forward_ns, message.sample_ns, message.draft_ns) == (7, 12, 3, 4)


def test_rows_that_only_go_on() -> None:
    message = shard_pb2.Plan(step_id=3, continued_slots=[4, 0], continued_starts=[17, 5], rows=[shard_pb2.Row(
        slot=2, start=9, from_last_sample=True, output=shard_pb2.SAMPLE, new_blocks=[7])])
    rows = wire.decode_plan(message, 3, check_row).rows
    assert [(row.slot, row.start, row.from_last_sample, row.num_inputs, row.is_sampled, list(row.new_blocks))
            for row in rows] == [(4, 17, True, 1, True, []), (0, 5, True, 1, True, []), (2, 9, True, 1, True, [7])]
    with pytest.raises(ValueError, match="plan 3 has 2 continued_slots and 1 continued_starts"):
        wire.decode_plan(shard_pb2.Plan(step_id=3, continued_slots=[4, 0], continued_starts=[17]), 3, check_row)


def test_rows_with_more_than_one_token_are_beside_the_columns() -> None:
    rows = (RowResult(1, (5,), (-0.5,)), RowResult(0, (6, 7), (-2.0, -1.0)), RowResult(2, (8,), (-1.5,)))
    message = wire.encode_result(StepResult(7, rows, 0, 0))
    assert (list(message.slots), [(row.slot, list(row.token_ids)) for row in message.rows]) == ([1, 2], [(0, [6, 7])])


def test_top_logprobs_and_prompt_logprobs() -> None:
    """One list for each token, of any length: fewer than were asked for may have a probability."""
    top, empty = ((5, -0.5), (7, -1.25)), ()
    rows = (RowResult(1, (5,), (-0.5,), (top,)), RowResult(2, (6,), (0.0,), (empty,)),
            RowResult(0, (), (), prompt_logprobs=(-1.0, -2.0), prompt_top_logprobs=(top, top[:1])))
    message = shard_pb2.StepResult.FromString(wire.encode_result(StepResult(7, rows, 0, 0)).SerializeToString())
    assert [[(list(top.ids), list(top.logprobs)) for top in row.top_logprobs] for row in message.rows] == [
        [([5, 7], [-0.5, -1.25])], [([], [])], []]
    assert list(message.rows[2].prompt_logprobs) == [-1.0, -2.0]
    assert [list(top.ids) for top in message.rows[2].prompt_top_logprobs] == [[5, 7], [5]]


def test_a_slot_has_one_mask() -> None:
    masks = [shard_pb2.Mask(slot=slot, bits=bytes([slot])) for slot in (3, 1)]
    assert wire.decode_masks(shard_pb2.Masks(step_id=4, masks=masks)) == {3: b"\3", 1: b"\1"}
    with pytest.raises(ValueError, match=r"masks of step 4 name a slot twice: \[3, 1, 3\]"):
        wire.decode_masks(shard_pb2.Masks(step_id=4, masks=[*masks, masks[0]]))


def test_facts() -> None:
    facts = Facts(
        model_id="a/b", dtype="bfloat16", kv_dtype="bfloat16", block_size=16, num_blocks=99, vocab_size=1000,
        eos_token_ids=frozenset({3, 2}), context_length=512, world_size=4, numerics="n", weights_digest="d",
        settings_digest="s", step_tokens=64, memory_id="m", first_blocks=120, num_states=8, takes_adapters=True,
        draft_context=256, group="g", num_stages=2, tasks=frozenset({Task.EMBED, Task.EMBED_ALL}), is_whole=True,
        pools_last=True, vector_size=384, pooling="mean", labels=("no", "yes"), activation="sigmoid",
        token_vector_size=192, pad_token_ids=frozenset({7}))
    message = wire.encode_facts(ShardFacts(1, facts.answering_rank == 1, facts, shards_here=1))
    assert list(message.eos_token_ids) == [2, 3]
    assert (message.rank, message.answers, message.kv_groups, message.step_tokens) == (1, False, 1, 64)
    assert facts.answering_rank == 2
    assert [field.name for field, _ in message.ListFields()] == [
        name for name in message.DESCRIPTOR.fields_by_name if name != "answers"]
    assert wire.decode_facts(message) == ShardFacts(1, False, facts, shards_here=1)
