"""Bodies of requests: fields, types and defaults as TGI takes them. What values may be is `router.validation`'s."""

import struct
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field


def _to_float32(value: float) -> float:
    """The nearest float32, which is what is checked and what shards are sent."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        raise ValueError("must fit into 32 bits") from None


Float32 = Annotated[float, Field(allow_inf_nan=False), AfterValidator(_to_float32)]
Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
UInt32 = Annotated[int, Field(ge=0, lt=2**32)]
UInt64 = Annotated[int, Field(ge=0, lt=2**64)]


class Body(BaseModel):
    """Types are exact, except that an integer is a number; fields that are not named here are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class Parameters(Body):
    """How to generate. None is the same as absent; where None is no choice, null is refused."""

    best_of: UInt64 | None = None
    temperature: Float32 | None = None
    repetition_penalty: Float32 | None = None
    frequency_penalty: Float32 | None = None
    top_k: Int32 | None = None
    top_p: Float32 | None = None
    typical_p: Float32 | None = None
    do_sample: bool = False
    max_new_tokens: UInt32 | None = None
    return_full_text: bool | None = None
    stop: Annotated[list[str], FailFast()] = []
    truncate: UInt64 | None = None
    watermark: bool = False
    details: bool = False
    decoder_input_details: bool = False
    seed: UInt64 | None = None
    top_n_tokens: UInt32 | None = None
    grammar: Any = None
    adapter_id: str | None = None


class GenerateBody(Body):
    """`POST /generate`, `/generate_stream` and `/tokenize`. Without `parameters` an answer is sampled."""

    inputs: str
    parameters: Parameters = Parameters(do_sample=True)


class CompatBody(GenerateBody):
    """`POST /`."""

    stream: bool = False
