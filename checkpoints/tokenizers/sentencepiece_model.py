"""SentencePiece's model file, a protobuf message of which the fields below matter.

https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

import math
from enum import IntEnum
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from penstock.checkpoints.tokenizers.settings import read_bytes
from penstock.system.fields import FileError

PACKAGE = "penstock.sentencepiece"
_Kind = descriptor_pb2.FieldDescriptorProto
BOOL, BYTES, FLOAT, INT = _Kind.TYPE_BOOL, _Kind.TYPE_BYTES, _Kind.TYPE_FLOAT, _Kind.TYPE_INT32
MESSAGES: dict[str, dict[str, tuple[int, Any, str]]] = {
    "Piece": {"piece": (1, BYTES, ""), "score": (2, FLOAT, "0"), "type": (3, INT, "1")},
    "Trainer": {"model_type": (3, INT, "1"), "treat_whitespace_as_suffix": (24, BOOL, "false"),
                "byte_fallback": (35, BOOL, "false"), "unk_id": (40, INT, "0"), "bos_id": (41, INT, "1"),
                "eos_id": (42, INT, "2"), "pad_id": (43, INT, "-1")},
    "Normalizer": {"precompiled_charsmap": (2, BYTES, ""), "add_dummy_prefix": (3, BOOL, "true"),
                   "remove_extra_whitespaces": (4, BOOL, "true"), "escape_whitespaces": (5, BOOL, "true")},
    "Model": {"pieces": (1, "Piece", ""), "trainer_spec": (2, "Trainer", ""), "normalizer_spec": (3, "Normalizer", ""),
              "denormalizer_spec": (5, "Normalizer", "")},
}
"""By message and field: its number, its type, and what it is where a file is silent."""


class ModelType(IntEnum):
    UNIGRAM = 1
    BPE = 2


class Model:
    """The tokens of a model file, and how it normalises texts."""

    def __init__(self, path: Path) -> None:
        """Reads the file. Raises FileError."""
        self.path = path
        message = _message_class()()
        try:
            message.ParseFromString(read_bytes(path))
            self.texts = [piece.piece.decode() for piece in message.pieces]
        except (DecodeError, UnicodeError) as error:
            raise FileError(path, f"expected SentencePiece's model, or lines of a token in base64 and its rank: {error}"
                            ) from error
        self.scores: list[float] = [piece.score for piece in message.pieces]
        self.types: list[int] = [piece.type for piece in message.pieces]
        self.trainer: Any = message.trainer_spec
        self.normalizer: Any = message.normalizer_spec
        self._check(bool(message.denormalizer_spec.precompiled_charsmap))

    def _check(self, denormalises: bool) -> None:
        if not self.texts:
            raise FileError(self.path, "expected SentencePiece's model with tokens, found none")
        if len(set(self.texts)) < len(self.texts) or not all(map(math.isfinite, self.scores)):
            raise FileError(self.path, "expected tokens that differ, with scores that are numbers")
        if self.trainer.model_type not in list(ModelType):
            raise FileError(self.path, "trainer_spec.model_type: expected 1 (unigram) or 2 (BPE), found "
                                       f"{self.trainer.model_type}")
        if not 0 <= self.trainer.unk_id < len(self.texts):
            raise FileError(self.path, f"trainer_spec.unk_id: expected the id of one of {len(self.texts)} tokens, "
                                       f"found {self.trainer.unk_id}")
        if self.trainer.treat_whitespace_as_suffix or not self.normalizer.escape_whitespaces or denormalises:
            raise FileError(self.path, "expected spaces that are marked at the beginning of words, and no rules for "
                                       "what is decoded: treat_whitespace_as_suffix false, escape_whitespaces true, no "
                                       "denormalizer_spec")

    def token(self, token_id: int) -> str | None:
        """Returns a token; None for an id that stands for none, such as -1."""
        return self.texts[token_id] if 0 <= token_id < len(self.texts) else None


def _message_class() -> Any:
    """Makes protobuf's class of the message from its fields: SentencePiece's own needs the package of that name."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{PACKAGE}.proto", package=PACKAGE, syntax="proto2")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, default) in fields.items():
            label = _Kind.LABEL_REPEATED if field == "pieces" else _Kind.LABEL_OPTIONAL
            if isinstance(kind, str):
                message.field.add(name=field, number=number, label=label, type=_Kind.TYPE_MESSAGE,
                                  type_name=f".{PACKAGE}.{kind}")
            else:
                message.field.add(name=field, number=number, label=label, type=kind, default_value=default)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.Model"))
