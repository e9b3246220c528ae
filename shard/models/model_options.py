"""The options of a model that a user may set, and the weight format that follows from them."""

from dataclasses import dataclass, field
from typing import Literal

from penstock.kernels.quantised_linear.activations import Activations
from penstock.shard.models.keys import Keys, ModelConfigError
from penstock.shard.weights.dense import dense_everywhere
from penstock.shard.weights.format import FormatOf

INT8: Literal["int8"] = "int8"
BF16: Literal["bf16"] = "bf16"
ACTIVATIONS = {INT8: Activations.INT8, BF16: Activations.FLOAT}


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The settings --quantize, --activations, --rope-scaling, --rope-factor, --model-impl, --task and --pooling; None
    leaves the choice to the checkpoint."""

    quantize: str | None = None
    activations: Literal["int8", "bf16"] | None = None
    rope_scaling: Literal["linear", "dynamic"] | None = None
    rope_factor: float = 1.0             # of that scaling
    implementation: Literal["auto", "native", "transformers"] = "auto"
    task: Literal["generate", "embed", "classify", "rerank"] | None = None
    pooling: str | None = None           # of sentence-transformers' names, or splade

    def activations_for(self, keys: Keys, weights: str, are_whole: bool) -> Activations:
        """Returns the number format of the inputs of coded weights; `are_whole` says whether their levels are whole
        numbers. Raises ModelConfigError if the requested format is impossible."""
        if self.activations == INT8 and not are_whole:
            raise ModelConfigError(f"{keys.path}: --activations {INT8}: the weights are {weights}, which are no whole "
                                   f"numbers; they are computed with --activations {BF16} alone")
        return ACTIVATIONS[self.activations or (INT8 if are_whole else BF16)]


AS_STORED = ModelOptions()


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the linears of a model are stored and computed."""

    name: str = field(default="", repr=False)  # of the format; empty for plain numbers
    activations: Activations | None = field(default=None, repr=False)  # None if no linear is coded
    format_of: FormatOf = field(default=dense_everywhere, repr=False)
    said: str = ""                       # by the checkpoint of its formats, as JSON

    # Its repr belongs to the model's identity, which is the same whatever numbers compute it: those are in `numerics`.

    @property
    def numerics(self) -> str:
        """Returns the name of the number format, since it decides bits: a part of a path, empty for plain numbers."""
        inputs = f"activations-{self.activations}/" if self.activations else ""
        return f"{self.name}/{inputs}" if self.name else ""


PLAIN = Quantization()
