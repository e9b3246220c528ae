"""A fact or a sampling parameter more is a field of its noun and one of its message, and no other line."""

from dataclasses import fields, make_dataclass
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from penstock.contract.codec import Codec, Kind
from penstock.contract.facts import Facts
from penstock.contract.sampling import Sampling
from penstock.contract.wire import FACTS, IDS, SAMPLING, names_of
from penstock.protos import shard_pb2
from tests.fakes import FACTS as SOME_FACTS


def with_field(name: str, number: int, kind: Any) -> Any:
    """The class of a message of the contract that has one more field."""
    file = descriptor_pb2.FileDescriptorProto()
    shard_pb2.DESCRIPTOR.CopyToProto(file)
    [message] = [each for each in file.message_type if each.name == name]
    message.field.append(FieldDescriptorProto(
        name="made_up", number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}"))


def grown(noun: type, codec: Codec[Any], message: Any, of: type, default: Any, **kinds: Kind) -> tuple[Any, Codec[Any]]:
    """The noun with the field, and the codec made as the wire's is, with the kinds that the wire's has."""
    larger = make_dataclass(f"Larger{noun.__name__}", [("made_up", of, default)], bases=(noun,), frozen=True)
    known = {name: Kind(encode, decode) for name, encode, decode in codec._kinds}
    return larger, Codec(larger, names_of(larger), message, **known, **kinds)


@pytest.mark.parametrize(("kind", "of", "value", "kinds"), [
    (FieldDescriptorProto.TYPE_FLOAT, float, 0.25, {}), (FieldDescriptorProto.TYPE_BOOL, bool, True, {}),
    (FieldDescriptorProto.TYPE_BYTES, tuple, (7, 70_000), {"made_up": IDS})])
def test_a_sampling_parameter(kind: Any, of: type, value: Any, kinds: dict[str, Kind]) -> None:
    message = with_field("Sampling", 99, kind)
    larger, codec = grown(Sampling, SAMPLING, message, of, of(), **kinds)
    came = codec.decode(message.FromString(codec.encode(larger(top_k=3, made_up=value)).SerializeToString()))
    assert (came.top_k, of(came.made_up)) == (3, value)
    assert of(codec.decode(message()).made_up) == of()


def test_a_fact() -> None:
    message = with_field("Facts", 99, FieldDescriptorProto.TYPE_STRING)
    larger, codec = grown(Facts, FACTS, message, str, "")
    facts = larger(**{name: getattr(SOME_FACTS, name) for name in names_of(Facts)}, made_up="new")
    assert codec.decode(message.FromString(codec.encode(facts).SerializeToString())) == facts
    assert facts.differences(larger(**{**{each.name: getattr(facts, each.name) for each in fields(facts)},
                                       "made_up": "old"}), besides=[]) == ["made_up: new and old"]
