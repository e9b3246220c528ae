"""How the rows of a step are sampled, and what comes of it."""

from dataclasses import dataclass

from torch import Tensor

from penstock.kernels.top_logprobs import TopLogprobs


@dataclass(frozen=True, slots=True)
class SampleParameters:
    """How each of R rows is sampled, in the order in which it is applied; every tensor is [R]."""

    prompt_length: Tensor  # int64: so many ids of the history are the prompt, the rest is the output
    repetition_penalty: Tensor  # float32, above 0; 1 is off
    share_penalty: Tensor  # float32; 0 is off
    frequency_penalty: Tensor  # float32; 0 is off
    presence_penalty: Tensor  # float32; 0 is off
    mask: Tensor  # int64: index into the masks; -1 is none
    do_sample: Tensor  # bool; false takes the likeliest token, and nothing that follows counts but top_n
    temperature: Tensor  # float32, above 0; 1 is off
    top_k: Tensor  # int64; 0 is off
    top_p: Tensor  # float32, above 0; 1 is off
    typical_p: Tensor  # float32, above 0; 1 is off
    min_p: Tensor  # float32; 0 is off, and more than 1 is 1
    seed: Tensor  # int64: the bits of a uint64
    position: Tensor  # int64, below 2³²: how many tokens of the output come before this one
    branch: Tensor  # int64, below 2³²
    top_n: Tensor  # int64: how many of the likeliest tokens to tell


@dataclass(frozen=True, slots=True)
class History:
    """All tokens before the sampled one, row after row; rows without penalties need none."""

    ids: Tensor  # int64 [total]
    offsets: Tensor  # int64 [R + 1]: row r has those from offsets[r] to offsets[r + 1]


@dataclass(frozen=True, slots=True)
class Biases:
    """What is added to the scores of some tokens, row after row."""

    ids: Tensor  # int64 [total]
    values: Tensor  # float32 [total]; -inf bans the token
    offsets: Tensor  # int64 [R + 1]


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was chosen for each of R rows."""

    ids: Tensor  # int64 [R]
    logprobs: Tensor  # float32 [R]
    top_logprobs: TopLogprobs  # of what else might have been
