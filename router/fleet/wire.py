"""Converts plans to protobuf and results from it. No pb2 type goes further than this file and `client.py`."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from penstock.contract.facts import Facts
from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.row_result import RowResult, TopLogprobs
from penstock.contract.sampling import Sampling
from penstock.contract.shard_facts import ShardFacts
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.protos import shard_pb2

_PLAIN = [field.name for field in fields(Sampling) if field.name not in ("bias", "banned_ids")]
"""Fields of a sampling that are a number each."""
_CONTINUED = Row(0, 0, from_last_sample=True, is_decode=True)[2:]
"""The fields besides slot and start of the rows that have columns of their own."""


def encode_stream_limits(epoch: int, limits: StreamLimits) -> shard_pb2.Order:
    return shard_pb2.Order(stream_limits=shard_pb2.StreamLimits(
        epoch=epoch, max_slots=limits.max_slots, max_step_tokens=limits.max_step_tokens,
        max_blocks_per_slot=limits.max_blocks_per_slot))


def encode_plan(plan: Plan) -> shard_pb2.Order:
    continued: list[Row] = []
    others: list[Row] = []
    for row in plan.rows:
        (continued if row[2:] == _CONTINUED else others).append(row)
    return shard_pb2.Order(plan=shard_pb2.Plan(
        step_id=plan.step_id, cleared_slots=plan.cleared_slots,
        continued_slots=[row.slot for row in continued], continued_starts=[row.start for row in continued],
        rows=[_encode_row(row) for row in others],
        block_copies=[shard_pb2.BlockCopy(source=copy.source, target=copy.target) for copy in plan.block_copies]))


def encode_masks(step_id: int, masks: Mapping[int, bytes]) -> shard_pb2.Order:
    return shard_pb2.Order(masks=shard_pb2.Masks(
        step_id=step_id, masks=[shard_pb2.Mask(slot=slot, bits=bits) for slot, bits in masks.items()]))


def decode_result(message: shard_pb2.StepResult) -> StepResult:
    rows = (*(RowResult(slot, (token_id,), (logprob,)) for slot, token_id, logprob
              in zip(message.slots, message.token_ids, message.logprobs, strict=True)), *map(_decode_row, message.rows))
    return StepResult(message.step_id, rows, message.forward_ns / 1e9, message.sample_ns / 1e9,
                      message.draft_ns / 1e9)


def decode_facts(message: shard_pb2.Facts) -> ShardFacts:
    told = {each.name: getattr(message, each.name) for each in fields(Facts)}
    told["eos_token_ids"] = frozenset(message.eos_token_ids)
    return ShardFacts(message.rank, message.answers, Facts(**told), message.shards_here)


def _encode_row(row: Row) -> shard_pb2.Row:
    return shard_pb2.Row(
        slot=row.slot, start=row.start, from_last_sample=row.from_last_sample, token_ids=_encode_ids(row.token_ids),
        new_blocks=row.new_blocks,
        output=shard_pb2.SAMPLE if row.output is Output.SAMPLE else shard_pb2.NONE,
        initial_state=_encode_initial_state(row.initial_state) if row.initial_state else None,
        late_mask=row.late_mask, prompt_logprob_ids=_encode_ids(row.prompt_logprob_ids), num_drafts=row.num_drafts,
        num_proposals=row.num_proposals)


def _encode_initial_state(initial_state: InitialState) -> shard_pb2.InitialState:
    return shard_pb2.InitialState(
        sampling=_encode_sampling(initial_state.sampling), prompt_length=initial_state.prompt_length,
        history_ids=_encode_ids(initial_state.history_ids), trace=initial_state.trace,
        adapter=initial_state.adapter)


def _encode_sampling(sampling: Sampling) -> shard_pb2.Sampling:
    return shard_pb2.Sampling(
        **{name: getattr(sampling, name) for name in _PLAIN},
        bias_ids=_encode_ids([token_id for token_id, _ in sampling.bias]),
        bias_values=[value for _, value in sampling.bias],
        banned_ids=_encode_ids(sampling.banned_ids))


def _decode_row(row: shard_pb2.RowResult) -> RowResult:
    return RowResult(
        row.slot, tuple(row.token_ids), tuple(row.logprobs), _decode_top_logprobs(row.top_logprobs),
        tuple(row.prompt_logprobs), _decode_top_logprobs(row.prompt_top_logprobs))


def _decode_top_logprobs(tops: Iterable[shard_pb2.TopLogprobs]) -> tuple[TopLogprobs, ...]:
    return tuple(tuple(zip(top.ids, top.logprobs, strict=True)) for top in tops)


def _encode_ids(ids: Sequence[int]) -> bytes:
    """Encodes ids, little-endian uint32 each, as every machine that Penstock runs on stores them."""
    return array("I", ids).tobytes() if ids else b""
