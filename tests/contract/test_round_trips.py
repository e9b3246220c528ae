"""Whatever a noun says comes back from the wire, for every noun."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.contract import wire
from penstock.contract.block_copy import BlockCopy
from penstock.contract.facts import Facts
from penstock.contract.initial_state import InitialState
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.row_result import OtherResult, RowResult
from penstock.contract.sampling import Sampling
from penstock.contract.shard_facts import ShardFacts
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits

QUICK = settings(max_examples=60, deadline=None)
NUMBERS, COUNTS = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
FLOATS = st.floats(width=32, allow_nan=False).map(lambda value: value + 0.0)
"""A zero below 0 is a field that is left out, as any other."""
TEXTS = st.text("a\0é€😀", max_size=5)
"""Characters of 1 to 4 bytes: to look for others, hypothesis first makes a table of all, for seconds."""
IDS = st.lists(NUMBERS, max_size=5).map(tuple)
TOPS = st.lists(st.lists(st.tuples(NUMBERS, FLOATS), max_size=3).map(tuple), max_size=3).map(tuple)
LOGPROBS = st.lists(FLOATS, max_size=3).map(tuple)

SAMPLINGS = st.builds(
    Sampling, seed=COUNTS, bias_ids=IDS, bias_values=LOGPROBS, banned_ids=IDS, allowed_ids=IDS,
    bad_word_ids=IDS, bad_word_lengths=IDS,
    **dict.fromkeys(("branch", "min_tokens", "top_k", "top_n"), NUMBERS),
    **{each.name: FLOATS for each in fields(Sampling) if type(each.default) is float})
STATES = st.builds(InitialState, SAMPLINGS, NUMBERS, IDS, st.dictionaries(TEXTS, st.binary(max_size=24), max_size=3))
TOLD = ("from_last_sample", "is_decode")
ROWS = st.builds(
    Row, NUMBERS, NUMBERS, IDS, new_blocks=IDS, initial_state=st.none() | STATES, prompt_logprob_ids=IDS,
    num_drafts=NUMBERS, num_proposals=NUMBERS, is_decode=st.just(False)) | st.builds(
        Row, NUMBERS, NUMBERS, from_last_sample=st.just(True), is_decode=st.just(True),
        **{name: st.just(value) for name, value in Row._field_defaults.items() if name not in TOLD})
RESULTS = st.builds(RowResult, NUMBERS, st.just((5, 6)), st.tuples(FLOATS, FLOATS), TOPS, LOGPROBS, TOPS,
                    st.lists(st.builds(OtherResult, TEXTS, st.binary(max_size=8)), max_size=3).map(tuple),
                    IDS) | st.builds(
    RowResult, NUMBERS, st.tuples(NUMBERS), st.tuples(FLOATS), *[st.just(())] * 5)
SIZES = st.integers(1, 2**32 - 1)
FACTS = st.builds(Facts, eos_token_ids=st.frozensets(NUMBERS, max_size=3), **{
    each.name: TEXTS if each.type == "str" or each.type is str else NUMBERS for each in fields(Facts)
    if each.type in (str, int)})


def sent(message: Any) -> Any:
    """The message as it is read at the other end."""
    assert isinstance(message, Message)
    return type(message).FromString(message.SerializeToString())


def as_tuples(row: Row) -> Row:
    """The row with tuples for arrays of ids, and with maps in order; all that the shards aren't told is off."""
    state = row.initial_state
    if state is not None:
        ids = ("bias_ids", "banned_ids", "allowed_ids", "bad_word_ids")
        sampling = replace(state.sampling, **{name: tuple(getattr(state.sampling, name)) for name in ids})
        state = replace(state, sampling=sampling, history_ids=tuple(state.history_ids),
                        side_inputs=dict(sorted(state.side_inputs.items())))
    return row._replace(token_ids=tuple(row.token_ids), prompt_logprob_ids=tuple(row.prompt_logprob_ids),
                        initial_state=state, is_decode=False)


@QUICK
@given(st.lists(ROWS, min_size=1, max_size=5), IDS, st.lists(st.builds(BlockCopy, NUMBERS, NUMBERS), max_size=3))
def test_plans(rows: list[Row], cleared: tuple[int, ...], copies: list[BlockCopy]) -> None:
    plan = Plan(7, tuple(rows), cleared, tuple(copies))
    came = wire.decode_plan(sent(wire.encode_plan(plan)).plan, 7, lambda row: None)
    assert (came.cleared_slots, came.block_copies) == (cleared, plan.block_copies)
    assert sorted(map(repr, map(as_tuples, came.rows))) == sorted(map(repr, map(as_tuples, rows)))


@QUICK
@given(st.lists(RESULTS, max_size=5), COUNTS, COUNTS, COUNTS, st.none() | COUNTS)
def test_results(rows: list[RowResult], forward: int, sample: int, draft: int, energy: int | None) -> None:
    came = wire.decode_result(sent(wire.encode_result(StepResult(3, tuple(rows), forward, sample, draft, energy))))
    assert replace(came, rows=()) == StepResult(3, (), forward, sample, draft, energy)
    assert sorted(map(repr, came.rows)) == sorted(map(repr, rows))


@QUICK
@given(FACTS, NUMBERS, st.booleans(), NUMBERS)
def test_facts(facts: Facts, rank: int, answers: bool, shards_here: int) -> None:
    shard = ShardFacts(rank, answers, facts, shards_here)
    assert wire.decode_facts(sent(wire.encode_facts(shard))) == shard


@QUICK
@given(st.builds(StreamLimits, SIZES, SIZES, SIZES, COUNTS))
def test_limits(limits: StreamLimits) -> None:
    assert wire.decode_stream_limits(sent(wire.encode_stream_limits(limits)).stream_limits) == limits


@QUICK
@given(st.dictionaries(NUMBERS, st.binary(max_size=8)))
def test_masks(masks: dict[int, bytes]) -> None:
    assert wire.decode_masks(sent(wire.encode_masks(3, masks)).masks) == masks


def test_floats_are_those_of_the_wire() -> None:
    row = Row(0, 0, (5,), initial_state=InitialState(Sampling(temperature=0.7), 1))
    came = wire.decode_plan(sent(wire.encode_plan(Plan(0, (row,)))).plan, 0, lambda row: None).rows[0].initial_state
    assert came is not None
    assert came.sampling.temperature == float(np.float32(0.7))
