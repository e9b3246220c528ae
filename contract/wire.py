"""Converts the contract's nouns to protobuf and back. No message goes further than this file, the router's client and
the shard's server."""

from array import array
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from penstock.contract.block_copy import BlockCopy
from penstock.contract.codec import Codec, Kind
from penstock.contract.facts import Facts
from penstock.contract.ids import Ids
from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.pooling import GENERATES, Task, encode_tasks
from penstock.contract.row import Row
from penstock.contract.row_result import OtherResult, RowResult, TopLogprobs
from penstock.contract.sampling import Sampling
from penstock.contract.shard_facts import ShardFacts
from penstock.contract.step_result import StepResult
from penstock.contract.stream_limits import StreamLimits
from penstock.protos import shard_pb2


def _encode_ids(ids: Ids) -> bytes:
    """Encodes ids, little-endian uint32 each, as every machine that Penstock runs on stores them."""
    return array("I", ids).tobytes()


def _decode_ids(message: Any, name: str) -> Ids:
    data = getattr(message, name)
    if len(data) % 4:
        raise ValueError(f".{name} has {len(data)} bytes, no multiple of 4")
    return array("I", data) if data else ()


def _decode_output(message: Any, name: str) -> Output:
    number = getattr(message, name)
    if number not in _OUTPUTS:
        *known, last = (f"{each.name} ({each.value})" for each in Output)
        raise ValueError(f".{name} is {number}, known are {', '.join(known)} and {last}")
    return _OUTPUTS[number]


def _decode_tasks(message: Any, name: str) -> frozenset[Task]:
    names = set(getattr(message, name))
    if unknown := names - {each.value for each in Task}:
        raise ValueError(f".{name} has {', '.join(sorted(unknown))}, known are "
                         f"{', '.join(each.value for each in Task)}")
    return frozenset(map(Task, names)) or GENERATES


def _encode_top_logprobs(top: TopLogprobs) -> shard_pb2.TopLogprobs:
    return shard_pb2.TopLogprobs(ids=[token_id for token_id, _ in top], logprobs=[logprob for _, logprob in top])


def _decode_top_logprobs(message: shard_pb2.TopLogprobs) -> TopLogprobs:
    return tuple(zip(message.ids[:], message.logprobs[:], strict=True))  # lists are faster to go through


def _decode_map(message: Any, name: str) -> dict[str, bytes]:
    values = getattr(message, name)
    return dict(values) if values else {}  # a copy of an empty one takes six times as long


def part(codec: Codec[Any], is_optional: bool = False) -> Kind:
    """A field that is a message of its own, or None where it is optional."""
    def decode(message: Any, name: str) -> Any:
        if is_optional and not message.HasField(name):
            return None
        try:
            return codec.decode(getattr(message, name))
        except ValueError as error:
            raise ValueError(f".{name}{error}") from error

    return Kind(codec.encode, decode)


def parts(encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> Kind:
    """A field that is a tuple, each item of which is a message of its own."""
    def decode_all(message: Any, name: str) -> tuple[Any, ...]:
        messages = getattr(message, name)
        return tuple(map(decode, messages)) if messages else ()

    return Kind(lambda items: [*map(encode, items)], decode_all)


def names_of(dataclass: Any) -> list[str]:
    """Names the fields of a dataclass."""
    return [each.name for each in fields(dataclass)]


_OUTPUTS = {each.value: each for each in Output}
IDS = Kind(_encode_ids, _decode_ids)
NUMBERS = Kind(lambda numbers: numbers, lambda message, name: tuple(getattr(message, name)))
"""Repeated numbers or texts, which are a tuple."""
MAP = Kind(lambda values: values, _decode_map)
"""Values by name."""
TOPS = parts(_encode_top_logprobs, _decode_top_logprobs)

SET = Kind(sorted, lambda message, name: frozenset(getattr(message, name)))
FACTS = Codec(Facts, names_of(Facts), shard_pb2.Facts, eos_token_ids=SET, pad_token_ids=SET, labels=NUMBERS,
              tasks=Kind(encode_tasks, _decode_tasks))
LIMITS = Codec(StreamLimits, names_of(StreamLimits), shard_pb2.StreamLimits)
SAMPLING = Codec(Sampling, names_of(Sampling), shard_pb2.Sampling, bias_ids=IDS, bias_values=NUMBERS, banned_ids=IDS,
                 allowed_ids=IDS, bad_word_ids=IDS, bad_word_lengths=NUMBERS)
INITIAL_STATE = Codec(InitialState, names_of(InitialState), shard_pb2.InitialState, sampling=part(SAMPLING),
                      history_ids=IDS, side_inputs=MAP)
ROW = Codec(Row, Row._fields, shard_pb2.Row, untold=["is_decode"], token_ids=IDS, new_blocks=NUMBERS,
            output=Kind(lambda output: output.value, _decode_output), prompt_logprob_ids=IDS,
            initial_state=part(INITIAL_STATE, is_optional=True))
COPY = Codec(BlockCopy, names_of(BlockCopy), shard_pb2.BlockCopy)
OTHER_RESULT = Codec(OtherResult, OtherResult._fields, shard_pb2.OtherResult)
ROW_RESULT = Codec(RowResult, RowResult._fields, shard_pb2.RowResult, token_ids=NUMBERS, logprobs=NUMBERS,
                   top_logprobs=TOPS, prompt_logprobs=NUMBERS, prompt_top_logprobs=TOPS, prompt_ranks=NUMBERS,
                   others=parts(OTHER_RESULT.encode, OTHER_RESULT.decode))

_CONTINUED = Row(0, 0, from_last_sample=True, is_decode=True)[2:]
"""The fields besides slot and start of the rows that have columns of their own."""

_NOTHING_ELSE = RowResult(0, (), ())[3:]
"""The fields besides slot, token and logprob of the results that have columns of their own."""


def encode_stream_limits(limits: StreamLimits) -> shard_pb2.Order:
    return shard_pb2.Order(stream_limits=LIMITS.encode(limits))


def decode_stream_limits(message: shard_pb2.StreamLimits) -> StreamLimits:
    """Decodes the limits of a stream. Raises ValueError for one of 0, under which nothing could ever run."""
    limits = LIMITS.decode(message)
    for name in ("max_slots", "max_step_tokens", "max_blocks_per_slot"):
        if getattr(limits, name) == 0:
            raise ValueError(f"stream_limits.{name} is 0, it must be at least 1")
    return limits


def encode_plan(plan: Plan) -> shard_pb2.Order:
    continued: list[Row] = []
    others: list[Row] = []
    for row in plan.rows:
        (continued if row[2:] == _CONTINUED else others).append(row)
    return shard_pb2.Order(plan=shard_pb2.Plan(
        step_id=plan.step_id, cleared_slots=plan.cleared_slots,
        continued_slots=[row.slot for row in continued], continued_starts=[row.start for row in continued],
        rows=[ROW.encode(row) for row in others], block_copies=[COPY.encode(copy) for copy in plan.block_copies]))


def decode_plan(message: shard_pb2.Plan, step_id: int, check: Callable[[Row], None]) -> Plan:
    """Decodes a plan. Raises ValueError if it is not the one of `step_id`, or has no rows, or one that `check` raises
    a ValueError for. Rows that only go on need no check."""
    if message.step_id != step_id:
        raise ValueError(f"plan.step_id is {message.step_id}, the next one of this stream is {step_id}")
    slots, starts = message.continued_slots, message.continued_starts
    if len(slots) != len(starts):
        raise ValueError(f"plan {step_id} has {len(slots)} continued_slots and {len(starts)} continued_starts")
    if not message.rows and not slots:
        raise ValueError(f"plan {step_id} has no rows")
    rows = [Row(slot, start, *_CONTINUED) for slot, start in zip(slots, starts, strict=True)]
    for index, each in enumerate(message.rows):
        try:
            rows.append(row := ROW.decode(each))
            check(row)
        except ValueError as error:
            raise ValueError(f"plan {step_id}, rows[{index}]{error}") from error
    return Plan(step_id, tuple(rows), tuple(message.cleared_slots), tuple(map(COPY.decode, message.block_copies)))


def encode_masks(step_id: int, masks: Mapping[int, bytes]) -> shard_pb2.Order:
    return shard_pb2.Order(masks=shard_pb2.Masks(
        step_id=step_id, masks=[shard_pb2.Mask(slot=slot, bits=bits) for slot, bits in masks.items()]))


def decode_masks(message: shard_pb2.Masks) -> dict[int, bytes]:
    """Returns the mask of each slot. Raises ValueError for a slot that is named twice."""
    masks = {mask.slot: mask.bits for mask in message.masks}
    if len(masks) < len(message.masks):
        raise ValueError(f"masks of step {message.step_id} name a slot twice: {[mask.slot for mask in message.masks]}")
    return masks


def encode_result(result: StepResult) -> shard_pb2.StepResult:
    plain: list[RowResult] = []
    others: list[RowResult] = []
    for row in result.rows:
        (plain if _is_plain(row) else others).append(row)
    return shard_pb2.StepResult(
        step_id=result.step_id, slots=[row.slot for row in plain], token_ids=[row.token_ids[0] for row in plain],
        logprobs=[row.logprobs[0] for row in plain], rows=[ROW_RESULT.encode(row) for row in others],
        forward_ns=result.forward_ns, sample_ns=result.sample_ns, draft_ns=result.draft_ns,
        energy_uj=result.energy_uj)


def decode_result(message: shard_pb2.StepResult) -> StepResult:
    rows = (*(RowResult(slot, (token_id,), (logprob,)) for slot, token_id, logprob
              in zip(message.slots, message.token_ids, message.logprobs, strict=True)),
            *map(ROW_RESULT.decode, message.rows))
    return StepResult(message.step_id, rows, message.forward_ns, message.sample_ns, message.draft_ns,
                      message.energy_uj if message.HasField("energy_uj") else None)


def encode_facts(shard: ShardFacts) -> shard_pb2.Facts:
    message: shard_pb2.Facts = FACTS.encode(
        shard.facts, rank=shard.rank, answers=shard.answers, shards_here=shard.shards_here, kv_groups=1)
    return message


def decode_facts(message: shard_pb2.Facts) -> ShardFacts:
    return ShardFacts(message.rank, message.answers, FACTS.decode(message), message.shards_here)


def _is_plain(row: RowResult) -> bool:
    """Tells whether a row has one token and nothing else."""
    return len(row.token_ids) == 1 and row[3:] == _NOTHING_ELSE
