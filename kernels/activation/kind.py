"""Names the activations."""

from enum import StrEnum


class Activation(StrEnum):
    """Names a function of one number x; `sigmoid` is 1 / (1 + e^-x)."""

    SILU = "silu"                        # x * sigmoid(x)
    GELU = "gelu"                        # x * Φ(x), with Φ of the normal distribution (Hendrycks and Gimpel 2016)
    GELU_TANH = "gelu_tanh"              # its approximation x / 2 * (1 + tanh(√(2 / π) * (x + 0.044715 x³)))
    GELU_SIGMOID = "gelu_sigmoid"        # its approximation x * sigmoid(1.702 x)
    SIGMOID = "sigmoid"                  # 1 / (1 + e^-x)
    RELU = "relu"                        # max(0, x)
    RELU_SQUARED = "relu_squared"        # max(0, x)² (So et al. 2021)
    CLAMPED_SWIGLU = "clamped_swiglu"    # gpt-oss's (u + 1) * g * sigmoid(1.702 g), gate g up to 7, up u from -7 to 7

    @property
    def number(self) -> int:
        """Returns its number in csrc/abi.h."""
        return _ORDER.index(self)


_ORDER = tuple(Activation)
