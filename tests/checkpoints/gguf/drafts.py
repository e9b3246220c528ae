"""GGUF files in parts that can be changed one by one, into what no writer would write."""

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

TEXT, ARRAY = 8, 9
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
EXTREMES = [0, 1, 2, 3, 7, 31, 33, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**48, 2**63, 2**64 - 1]


@dataclass
class Field:
    key: bytes
    kind: int
    payload: bytes


@dataclass
class TensorInfo:
    name: bytes
    lengths: list[int]
    kind: int
    offset: int


@dataclass
class Draft:
    fields: list[Field]
    tensors: list[TensorInfo]
    data: bytes
    counts: dict[str, int] = field(default_factory=dict)  # in place of the true ones

    def to_bytes(self) -> bytes:
        parts = [b"GGUF", struct.pack("<IQQ", 3, self.counts.get("tensors", len(self.tensors)),
                                      self.counts.get("fields", len(self.fields)))]
        for each in self.fields:
            parts += [_text(each.key), struct.pack("<I", each.kind), each.payload]
        for tensor in self.tensors:
            parts += [_text(tensor.name), struct.pack("<I", len(tensor.lengths)),
                      *(struct.pack("<Q", length) for length in tensor.lengths),
                      struct.pack("<IQ", tensor.kind, tensor.offset)]
        header = b"".join(parts)
        return header + bytes(-len(header) % 32) + self.data

    def with_field(self, key: str, kind: int, payload: bytes) -> "Draft":
        kept = [each for each in self.fields if each.key != key.encode()]
        return replace(self, fields=[*kept, Field(key.encode(), kind, payload)])


def _text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def text(value: str) -> bytes:
    return _text(value.encode())


def read(path: Path) -> Draft:
    """Takes a sound file apart."""
    content, at = path.read_bytes(), 24
    num_tensors, num_fields = struct.unpack_from("<QQ", content, 8)

    def take(layout: str) -> int:
        nonlocal at
        value: int = struct.unpack_from(f"<{layout}", content, at)[0]
        at += struct.calcsize(layout)
        return value

    def name() -> bytes:
        nonlocal at
        length = take("Q")
        at += length
        return content[at - length : at]

    def skip(kind: int) -> None:
        nonlocal at
        if kind == TEXT:
            name()
        elif kind == ARRAY:
            inner, length = take("I"), take("Q")
            for _ in range(length):
                skip(inner)
        else:
            at += WIDTHS[kind]

    fields, tensors = [], []
    for _ in range(num_fields):
        key, kind = name(), take("I")
        begin = at
        skip(kind)
        fields.append(Field(key, kind, content[begin:at]))
    for _ in range(num_tensors):
        tensors.append(TensorInfo(name(), [take("Q") for _ in range(take("I"))], take("I"), take("Q")))
    return Draft(fields, tensors, content[at + -at % 32 :])


def _scalar(rng: random.Random, kind: int) -> bytes:
    if kind == TEXT:
        return _text(rng.choice([b"", b"x", b"\xff\xfe", b"a" * 5000, "ü🦉".encode(), b"llama", b"qwen3", b"gpt2"]))
    if kind == ARRAY:
        inner = rng.choice([*WIDTHS, TEXT, ARRAY])
        length = rng.choice([0, 1, 2, 512])
        items = b"".join(_scalar(rng, inner) for _ in range(length)) if inner != ARRAY else b""
        return struct.pack("<IQ", inner, length) + items
    if kind in (6, 12):
        value = rng.choice([0.0, -1.0, 1e-30, 1e30, float("nan"), float("inf"), 0.5])
        return struct.pack("<f" if kind == 6 else "<d", value)
    return (rng.choice(EXTREMES) % 256 ** WIDTHS[kind]).to_bytes(WIDTHS[kind], "little")


def _other_value(rng: random.Random, each: Field) -> Field:
    return replace(each, payload=_scalar(rng, each.kind))


def _other_type(rng: random.Random, each: Field) -> Field:
    kind = rng.choice([*WIDTHS, TEXT, ARRAY])
    return replace(each, kind=kind, payload=_scalar(rng, kind))


def _misnamed_type(rng: random.Random, each: Field) -> Field:
    return replace(each, kind=rng.choice([*range(13), 13, 255, 2**32 - 1]))


def _other_length(rng: random.Random, each: Field) -> Field:
    at = 4 if each.kind == ARRAY else 0
    if each.kind not in (TEXT, ARRAY):
        return _other_value(rng, each)
    return replace(each, payload=each.payload[:at] + struct.pack("<Q", rng.choice(EXTREMES)) + each.payload[at + 8 :])


def _other_bytes(rng: random.Random, each: Field) -> Field:
    payload = bytearray(each.payload)
    for _ in range(rng.randint(1, 8)):
        payload[rng.randrange(len(payload))] = rng.randrange(256)
    return replace(each, payload=bytes(payload))


OF_FIELDS: list[Callable[[random.Random, Field], Field]] = [
    _other_value, _other_value, _other_type, _misnamed_type, _other_length, _other_bytes]


def _change_tensor(rng: random.Random, tensor: TensorInfo) -> TensorInfo:
    which = rng.randrange(6)
    lengths = list(tensor.lengths)
    if which == 0:
        lengths[rng.randrange(len(lengths))] = rng.choice(EXTREMES)
    elif which == 1:
        lengths = rng.choice([[], lengths[::-1], [*lengths, 1], [*lengths, 2], lengths * 3, [32], [32, 32]])
    elif which == 2:
        return replace(tensor, kind=rng.choice([*range(42), 2**32 - 1]))
    elif which == 3:
        return replace(tensor, offset=rng.choice([*EXTREMES, 32, 64, 4096, 17]))
    elif which == 4:
        return replace(tensor, name=rng.choice([b"", b"x", b"\xff", b"token_embd.weight", b"blk.0.attn_q.weight",
                                                b"blk.99999999.attn_q.weight", b"rope_freqs.weight", b"n" * 3000]))
    else:
        lengths = [length + rng.choice([-32, -1, 1, 32]) for length in lengths]
    return replace(tensor, lengths=[length % 2**64 for length in lengths])


def spoil(draft: Draft, number: int) -> bytes:
    """Returns a file with one thing wrong, or more; each field and each tensor has its turn as `number` grows."""
    rng = random.Random(number)
    fields, tensors = list(draft.fields), list(draft.tensors)
    at = number % (len(fields) + len(tensors) + 4)
    if at < len(fields):
        change = rng.randrange(len(OF_FIELDS) + 2)
        if change < len(OF_FIELDS):
            fields[at] = OF_FIELDS[change](rng, fields[at])
        elif change == len(OF_FIELDS):
            del fields[at]
        else:
            fields.append(fields[at])
    elif at < len(fields) + len(tensors):
        at -= len(fields)
        if rng.random() < 0.1:
            del tensors[at]
        else:
            tensors[at] = _change_tensor(rng, tensors[at])
    else:
        content = bytearray(draft.to_bytes())
        if rng.random() < 0.3:
            return bytes(content[: rng.randrange(len(content))])
        if rng.random() < 0.3:
            counts = {rng.choice(["tensors", "fields"]): rng.choice(EXTREMES)}
            return replace(draft, counts=counts).to_bytes()
        for _ in range(rng.randint(1, 6)):
            content[rng.randrange(len(content) - len(draft.data))] = rng.randrange(256)
        return bytes(content)
    return replace(draft, fields=fields, tensors=tensors).to_bytes()
