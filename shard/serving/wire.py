"""Converts protobuf messages to the shard's plain values and back. No message goes further than this file and
shard/serving/server.py."""

from dataclasses import asdict, fields
from math import isfinite

import numpy as np

from penstock.kernels.sample.parameters import PARAMETERS
from penstock.protos import shard_pb2
from penstock.shard.execution.step import (
    NO_BLOCKS,
    NO_IDS,
    BlockCopy,
    Facts,
    Ids,
    InitialState,
    Row,
    RowResult,
    Sampling,
    Step,
    StepResult,
    StreamLimits,
    TopLogprobs,
)

_PLAIN = [field.name for field in fields(Sampling) if field.name not in ("bias_ids", "bias_values", "banned_ids")]
"""Fields of a sampling that are a number each."""
TRACE_BYTES = 24


def decode_stream_limits(message: shard_pb2.StreamLimits) -> StreamLimits:
    """Decode the limits of a stream. Raises ValueError for one of 0, under which nothing could ever run."""
    limits = StreamLimits(message.epoch, message.max_slots, message.max_step_tokens, message.max_blocks_per_slot)
    for name in ("max_slots", "max_step_tokens", "max_blocks_per_slot"):
        if getattr(limits, name) == 0:
            raise ValueError(f"stream_limits.{name} is 0, it must be at least 1")
    return limits


def decode_plan(message: shard_pb2.Plan, step_id: int) -> Step:
    """Decode a plan. Raises ValueError if it is not the one of `step_id`, or has no rows, or one that no shard could
    run."""
    if message.step_id != step_id:
        raise ValueError(f"plan.step_id is {message.step_id}, the next one of this stream is {step_id}")
    slots, starts = message.continued_slots, message.continued_starts
    if len(slots) != len(starts):
        raise ValueError(f"plan {step_id} has {len(slots)} continued_slots and {len(starts)} continued_starts")
    if not message.rows and not slots:
        raise ValueError(f"plan {step_id} has no rows")
    continued = [Row(slot, start, True, NO_IDS, NO_BLOCKS, True) for slot, start in zip(slots, starts, strict=True)]
    rows = (_decode_row(row, f"plan {step_id}, rows[{index}]") for index, row in enumerate(message.rows))
    return Step(step_id, tuple(message.cleared_slots), (*continued, *rows),
                tuple(BlockCopy(copy.source, copy.target) for copy in message.block_copies))


def decode_masks(message: shard_pb2.Masks) -> dict[int, bytes]:
    """Returns the mask of each slot. Raises ValueError for a slot that is named twice."""
    masks = {mask.slot: mask.bits for mask in message.masks}
    if len(masks) < len(message.masks):
        raise ValueError(f"masks of step {message.step_id} name a slot twice: {[mask.slot for mask in message.masks]}")
    return masks


def encode_result(result: StepResult) -> shard_pb2.StepResult:
    plain = [row for row in result.rows if _is_plain(row)]
    return shard_pb2.StepResult(
        step_id=result.step_id, slots=[row.slot for row in plain], token_ids=[row.token_ids[0] for row in plain],
        logprobs=[row.logprobs[0] for row in plain],
        rows=[_encode_row(row) for row in result.rows if not _is_plain(row)],
        forward_ns=result.forward_ns, sample_ns=result.sample_ns, draft_ns=result.draft_ns)


def encode_facts(facts: Facts) -> shard_pb2.Facts:
    told = asdict(facts)
    del told["answering_rank"]           # each shard tells whether it is the one
    return shard_pb2.Facts(**told, answers=facts.answers, kv_groups=1)


def _decode_row(message: shard_pb2.Row, where: str) -> Row:
    if message.output not in (shard_pb2.NONE, shard_pb2.SAMPLE):
        raise ValueError(f"{where}.output is {message.output}, known are NONE (0) and SAMPLE (1)")
    row = Row(
        slot=message.slot,
        start=message.start,
        from_last_sample=message.from_last_sample,
        token_ids=_decode_ids(message.token_ids, f"{where}.token_ids"),
        new_blocks=np.array(message.new_blocks, dtype=np.int64).astype(np.int32),
        is_sampled=message.output == shard_pb2.SAMPLE,
        initial_state=(_decode_initial_state(message.initial_state, f"{where}.initial_state")
                       if message.HasField("initial_state") else None),
        late_mask=message.late_mask,
        prompt_logprob_ids=_decode_ids(message.prompt_logprob_ids, f"{where}.prompt_logprob_ids"),
        num_drafts=message.num_drafts,
        num_proposals=message.num_proposals)
    if row.count == row.num_proposals:
        raise ValueError(f"{where} has no input tokens")
    if row.num_proposals and (row.num_drafts or row.late_mask or not row.is_sampled):
        raise ValueError(f"{where}.num_proposals is {row.num_proposals}, in a row with {row.num_drafts} drafts"
                         f"{' and a late mask' * row.late_mask}; a token is {'' if row.is_sampled else 'not '}sampled")
    if row.num_drafts and (row.num_drafts >= row.count or row.num_drafts > len(row.token_ids) or not row.is_sampled):
        raise ValueError(f"{where}.num_drafts is {row.num_drafts}, of {row.count} input tokens, of which "
                         f"{len(row.token_ids)} are in token_ids; a token is {'' if row.is_sampled else 'not '}sampled")
    if len(row.prompt_logprob_ids) > row.count:
        raise ValueError(f"{where} has {len(row.prompt_logprob_ids)} prompt_logprob_ids for {row.count} input tokens")
    return row


def _decode_initial_state(message: shard_pb2.InitialState, where: str) -> InitialState:
    history_ids = _decode_ids(message.history_ids, f"{where}.history_ids")
    sampling = message.sampling
    for parameter in PARAMETERS:
        value = getattr(sampling, parameter.name)
        if parameter.bound and not parameter.bound.holds(value):
            raise ValueError(f"{where}.sampling.{parameter.name} is {value}, it must be {parameter.bound.text}")
    bias_ids = _decode_ids(sampling.bias_ids, f"{where}.sampling.bias_ids")
    if len(bias_ids) != len(sampling.bias_values):
        raise ValueError(f"{where}.sampling has {len(bias_ids)} bias_ids and {len(sampling.bias_values)} values")
    if not all(map(isfinite, sampling.bias_values)):
        raise ValueError(f"{where}.sampling.bias_values are {list(sampling.bias_values)}, they must be finite")
    if len(message.trace) not in (0, TRACE_BYTES):
        raise ValueError(f"{where}.trace has {len(message.trace)} bytes, a trace has {TRACE_BYTES}")
    return InitialState(
        sampling=Sampling(
            **{name: getattr(sampling, name) for name in _PLAIN},
            bias_ids=bias_ids,
            bias_values=np.array(sampling.bias_values, np.float32),
            banned_ids=_decode_ids(sampling.banned_ids, f"{where}.sampling.banned_ids")),
        prompt_length=message.prompt_length,
        history_ids=history_ids,
        trace=message.trace,
        adapter=message.adapter)


def _is_plain(row: RowResult) -> bool:
    """Tells whether a row has one token and nothing else."""
    return len(row.token_ids) == 1 and not row.top_logprobs and not row.prompt_logprobs


def _encode_row(row: RowResult) -> shard_pb2.RowResult:
    return shard_pb2.RowResult(
        slot=row.slot, token_ids=row.token_ids, logprobs=row.logprobs,
        top_logprobs=map(_encode_top_logprobs, row.top_logprobs), prompt_logprobs=row.prompt_logprobs,
        prompt_top_logprobs=map(_encode_top_logprobs, row.prompt_top_logprobs))


def _encode_top_logprobs(top: TopLogprobs) -> shard_pb2.TopLogprobs:
    return shard_pb2.TopLogprobs(ids=[token_id for token_id, _ in top], logprobs=[logprob for _, logprob in top])


def _decode_ids(data: bytes, where: str) -> Ids:
    """Decode ids, little-endian uint32 each."""
    if len(data) % 4:
        raise ValueError(f"{where} has {len(data)} bytes, no multiple of 4")
    return np.frombuffer(data, dtype="<u4").astype(np.int64)
