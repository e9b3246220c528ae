"""The frequencies of rotary embeddings, and how they are scaled for longer contexts: one function per type.

Each is computed in float32, operation by operation as transformers' modeling_rope_utils does it: these are its bits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.shard.models.keys import Keys

ORIGINAL_LENGTH = "original_max_position_embeddings"
SHARE, THETA = "partial_rotary_factor", "rope_theta"
DEFAULT_THETA = 10000.0                  # the base of the frequencies, where no key says
MAX_CONTEXT = 2**24                      # tokens; the angles of all positions are computed at start


@dataclass(frozen=True, slots=True)
class Rotation:
    """A token at position p has its i-th pair of dimensions turned by the angle p * frequencies[i]."""

    frequencies: tuple[float, ...]       # float32, in radians, of all pairs of dimensions that turn
    amplitude: float                     # factor of the cosines and sines
    context_length: int                  # tokens
    limitation: str = ""                 # what ends the context there, other than max_position_embeddings

    @classmethod
    def read(
        cls, keys: Keys, head_dim: int, share: float = 1.0, rope: Keys | None = None
    ) -> "Rotation":
        """Reads the rotation from a config.json of transformers 4 or 5. Raises ModelConfigError.

        share  of a head's dimensions that are rotated, the first ones, where no key says
        rope   the section that has the scaling, where it is neither rope_parameters nor rope_scaling
        """
        # transformers 5 has rope_parameters; 4 has rope_theta beside rope_scaling, whose oldest form says "type".
        rope = keys.section("rope_scaling", "rope_parameters") if rope is None else rope
        name, scaling = _scaling(rope)
        size = _rotated_size(keys, rope, head_dim, share)
        theta = rope.number(THETA, keys.number(THETA, DEFAULT_THETA, above=1), above=1)
        max_length = keys.integer("max_position_embeddings", most=MAX_CONTEXT)
        original_length = _original_length(keys, rope, max_length) if ORIGINAL_LENGTH in scaling.keys else max_length
        frequencies, amplitude = scaling.compute(_Plain(theta, size, original_length, max_length), rope)
        context_length, limitation = max_length, ""
        if scaling.is_by_length:
            context_length = min(max_length, original_length)
            limitation = f"{name} rotary scaling changes every angle of a longer sequence"
        return cls(tuple(frequencies.tolist()), amplitude, context_length, limitation)

    @classmethod
    def plain(cls, size: int, theta: float, context_length: int) -> "Rotation":
        """Returns the rotation of `size` dimensions that nothing scales."""
        frequencies, amplitude = _default(_Plain(theta, size, context_length, context_length), None)
        return cls(tuple(frequencies.tolist()), amplitude, context_length)


@dataclass(frozen=True, slots=True)
class _Plain:
    """Rotary embeddings (Su et al. 2021) before any scaling, and the contexts to scale them from and to."""

    theta: float
    size: int                            # dimensions of a head that turn
    original_length: int                 # tokens
    max_length: int                      # tokens

    @property
    def periods(self) -> Tensor:
        """Positions per radian of each pair of dimensions: float32 [size / 2]."""
        return self.theta ** (torch.arange(0, self.size, 2, dtype=torch.float32) / self.size)


def _default(plain: _Plain, rope: Keys | None) -> tuple[Tensor, float]:
    return 1.0 / plain.periods, 1.0


def _linear(plain: _Plain, rope: Keys) -> tuple[Tensor, float]:
    """Position interpolation (Chen et al. 2023)."""
    return 1.0 / plain.periods / rope.number("factor"), 1.0


def _dynamic(plain: _Plain, rope: Keys) -> tuple[Tensor, float]:
    """Dynamic NTK scaling changes theta for sequences longer than the context; up to there nothing is scaled."""
    rope.number("factor")
    return _default(plain, rope)


def _llama3(plain: _Plain, rope: Keys) -> tuple[Tensor, float]:
    """Llama 3.1 keeps the waves that are short beside the original context, stretches the long, and blends between."""
    factor, low, high = rope.number("factor"), rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if high <= low:
        raise rope.error("high_freq_factor", f"a number above low_freq_factor = {low}")
    frequencies = 1.0 / plain.periods
    wavelengths = 2 * math.pi / frequencies
    kept = (plain.original_length / wavelengths - low) / (high - low)
    blended = (1 - kept) * frequencies / factor + kept * frequencies
    scaled = torch.where(wavelengths > plain.original_length / low, frequencies / factor, blended)
    return torch.where(wavelengths < plain.original_length / high, frequencies, scaled), 1.0


def _factors(plain: _Plain, rope: Keys) -> tuple[Tensor, float]:
    """A factor per pair stretches it, whatever they were made by: what GGUF files have of Llama 3.1's scaling."""
    return 1.0 / plain.periods / torch.tensor(rope.numbers("factors", plain.size // 2), dtype=torch.float32), 1.0


def _yarn(plain: _Plain, rope: Keys) -> tuple[Tensor, float]:
    """YaRN (Peng et al. 2023) keeps pairs that turn often, stretches those that turn rarely, with a ramp between."""
    factor = rope.number("factor", plain.max_length / plain.original_length)

    def pair_that_turns(times: float) -> float:
        """Returns the pair of dimensions, as a fraction, that turns so many times over the original context."""
        turns = plain.original_length / (times * 2 * math.pi)
        return (plain.size * math.log(turns)) / (2 * math.log(plain.theta))

    begin = pair_that_turns(_number_or_zero(rope, "beta_fast") or 32)
    end = pair_that_turns(_number_or_zero(rope, "beta_slow") or 1)
    if rope.switch("truncate", True):
        begin, end = math.floor(begin), math.ceil(end)
    begin, end = max(begin, 0), min(end, plain.size - 1)
    width = (end if end != begin else end + 0.001) - begin
    kept = 1 - ((torch.arange(plain.size // 2, dtype=torch.float32) - begin) / width).clamp(0, 1)
    frequencies = 1.0 / (factor * plain.periods) * (1 - kept) + 1.0 / plain.periods * kept
    return frequencies, _yarn_amplitude(rope, factor)


def _yarn_amplitude(rope: Keys, factor: float) -> float:
    if rope.get("attention_factor") is not None:
        return rope.number("attention_factor")
    stretch = math.log(max(factor, 1.0))
    scale, scale_of_all = _number_or_zero(rope, "mscale"), _number_or_zero(rope, "mscale_all_dim")
    if scale and scale_of_all:
        return (0.1 * scale * stretch + 1.0) / (0.1 * scale_of_all * stretch + 1.0)
    return 0.1 * stretch + 1.0


def _longrope(plain: _Plain, rope: Keys) -> tuple[Tensor, float]:
    """LongRoPE (Ding et al. 2024) has a factor per pair, other ones for sequences longer than the original context."""
    factors = torch.tensor(rope.numbers("short_factor", plain.size // 2), dtype=torch.float32)
    factor = rope.number("factor", plain.max_length / plain.original_length)
    # These also hold for short sequences.
    amplitude = math.sqrt(1 + math.log(factor) / math.log(plain.original_length)) if factor > 1.0 else 1.0
    return 1.0 / (factors * plain.periods), rope.number("attention_factor", amplitude)


@dataclass(frozen=True, slots=True)
class _Scaling:
    compute: Callable[[_Plain, Keys], tuple[Tensor, float]]
    keys: tuple[str, ...] = ()
    is_by_length: bool = False           # a sequence longer than the original context has other angles everywhere


SCALINGS = {
    "default": _Scaling(_default),
    "linear": _Scaling(_linear, ("factor",)),
    "factors": _Scaling(_factors, ("factors",)),
    "llama3": _Scaling(_llama3, ("factor", "low_freq_factor", "high_freq_factor", ORIGINAL_LENGTH)),
    "yarn": _Scaling(_yarn, ("factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
                             "truncate", ORIGINAL_LENGTH)),
    "dynamic": _Scaling(_dynamic, ("factor",), is_by_length=True),
    "longrope": _Scaling(_longrope, ("factor", "attention_factor", "short_factor", "long_factor", ORIGINAL_LENGTH),
                         is_by_length=True),
}
OLD_NAMES = {"su": "longrope"}
OF_IMAGES = "mrope_section", "mrope_interleaved"
"""Which dimensions turn by a token's row and column in an image; of a text all turn by its position."""
KEYS_OF_ALL = (THETA, "rope_type", "type", SHARE, *OF_IMAGES)


def _scaling(rope: Keys) -> tuple[str, _Scaling]:
    key = "rope_type" if rope.get("rope_type") is not None else "type"
    name = str(rope.get(key, "default"))
    name = OLD_NAMES.get(name, name)
    if name not in SCALINGS:
        raise rope.error(key, f"one of {', '.join(SCALINGS)}")
    known = (*KEYS_OF_ALL, *SCALINGS[name].keys)
    for unknown in sorted(rope.names.difference(known)):
        raise rope.error(unknown, f"none, for the keys of {name} are {', '.join(known)}")
    return name, SCALINGS[name]


def _rotated_size(keys: Keys, rope: Keys, head_dim: int, share: float) -> int:
    """Returns how many of a head's dimensions turn."""
    share = rope.number(SHARE, keys.number(SHARE, share))
    size = int(head_dim * share)
    if not 0 < size <= head_dim or size % 2:
        holder = keys if rope.get(SHARE) is None else rope
        raise holder.error(SHARE, f"a share of the {head_dim} dimensions of a head that is an even number of them")
    return size


def _original_length(keys: Keys, rope: Keys, max_length: int) -> int:
    holder = rope if keys.get(ORIGINAL_LENGTH) is None else keys
    return holder.integer(ORIGINAL_LENGTH, max_length, least=2)


def _number_or_zero(rope: Keys, key: str) -> float:
    """Returns the number under a key; 0 if the key is absent, null or 0, which all mean the same here."""
    return rope.number(key) if rope.get(key) not in (None, 0) else 0.0
