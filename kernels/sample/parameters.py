"""How the rows of a step are sampled."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class SampleParameters:
    """How each of R rows is sampled; every tensor is [R]."""

    do_sample: Tensor  # bool; false takes the likeliest token, after the penalties and nothing else
    seed: Tensor  # int64: the bits of a uint64
    position: Tensor  # int64, below 2³²: how many tokens of the output come before this one
    temperature: Tensor  # float32, above 0; 1 is off
    top_k: Tensor  # int64; 0 is off
    top_p: Tensor  # float32, above 0; 1 is off
    typical_p: Tensor  # float32, above 0; 1 is off
    repetition_penalty: Tensor  # float32, above 0; 1 is off
    frequency_penalty: Tensor  # float32; 0 is off
