"""The settings of a quantisation."""

from dataclasses import dataclass, field
from typing import Literal

import torch

Calibrator = Literal["min-max", "percentile", "mse"]
Granularity = Literal["tensor", "channel", "group"]
METHODS = ("rtn", "gptq", "awq", "smoothquant", "llm-int8", "squeezellm")
FORMATS = ("compressed-tensors", "levels")
BITS = (4, 8)
USUAL_PERCENTILE = 99.9


class SettingsError(ValueError):
    """Settings contradict one another: the message names them."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Which levels a weight may have."""

    bits: int
    granularity: Granularity             # what shares a scale
    group: int                           # inputs of a group, where granularity is that
    symmetric: bool
    calibrator: Calibrator
    percentile: float                    # of the numbers that lie within the levels, where calibrator is that
    scale_dtype: torch.dtype = field(repr=False)

    def size(self, inputs: int) -> int:
        """Returns how many inputs share a scale."""
        return self.group if self.granularity == "group" else inputs


@dataclass(frozen=True, slots=True)
class Settings:
    """method, one of METHODS, and what it chooses the codes from."""

    method: str
    grid: Grid
    format: str
    damping: float = 0.01                # GPTQ: of the Hessian's mean diagonal, added to all of it
    smoothing: float = 0.5               # SmoothQuant's alpha

    @property
    def needs_text(self) -> bool:
        """Tells whether the codes depend on the calibration texts."""
        return self.method not in ("rtn", "llm-int8")

    @property
    def has_int8_inputs(self) -> bool:
        """Tells whether the file says that inputs are rounded to 8 bits, too."""
        return self.method in ("smoothquant", "llm-int8")


def make_settings(
    method: str, bits: int | None, group: int | None, granularity: Granularity | None, symmetric: bool,
    calibrator: Calibrator | None, percentile: float | None, format_: str | None, scale_dtype: torch.dtype,
) -> Settings:
    """Fills in the usual values of a method. Raises SettingsError for values that it can't have."""
    whole = method in ("smoothquant", "llm-int8")
    bits = bits or (8 if whole else 4)
    if whole and (bits != 8 or not symmetric):
        raise SettingsError(f"--method {method} has --bits 8 and symmetric levels: its inputs have 8 bits, too")
    granularity = granularity or ("channel" if whole or group == 0 else "group")
    if whole and granularity == "group":
        raise SettingsError(f"--method {method}: --granularity channel or tensor, for inputs have one scale a token")
    if granularity == "group" and group == 0:
        raise SettingsError("--group 0: --granularity group has groups; channel is without")
    if granularity != "group" and group:
        raise SettingsError(f"--group {group}: --granularity {granularity} has no groups")
    if method == "squeezellm" and (bits != 4 or granularity != "group"):
        raise SettingsError("--method squeezellm has --bits 4 and groups: its files hold a table of 16 levels, and the "
                            "largest number of each group")
    if method == "squeezellm" and (not symmetric or calibrator):
        raise SettingsError("--method squeezellm has no --asymmetric and no --calibrator: its levels lie where the "
                            "weights are")
    if percentile is not None and calibrator != "percentile":
        raise SettingsError(f"--percentile {percentile:g} is for --calibrator percentile")
    usual = "levels" if method == "squeezellm" else "compressed-tensors"
    if format_ not in (None, usual):
        raise SettingsError(f"--method {method} --format {format_}: expected {usual}, which holds what it makes")
    group = group or (64 if method == "squeezellm" else 128)
    if not 8 <= group <= 1024 or group & group - 1:
        raise SettingsError(f"--group {group}: expected a power of two from 8 to 1024")
    grid = Grid(bits, granularity, group, symmetric, calibrator or ("mse" if method == "awq" else "min-max"),
                USUAL_PERCENTILE if percentile is None else percentile, scale_dtype)
    return Settings(method, grid, usual)
