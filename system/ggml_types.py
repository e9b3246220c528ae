"""The types of tensors in GGUF files that are read (https://github.com/ggml-org/ggml/blob/master/include/ggml.h)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GgmlType:
    """A type whose numbers are stored in blocks along a tensor's rows."""

    number: int                          # by which files name it
    size: int                            # numbers in a block
    num_bytes: int                       # of a block

    def row_bytes(self, length: int) -> int:
        """Returns the bytes of a row of so many numbers, a multiple of `size`."""
        return length // self.size * self.num_bytes


SUPER = 256
"""The numbers in a block of the types with two levels of scales."""
GGML_TYPES = {
    "F32": GgmlType(0, 1, 4),
    "F16": GgmlType(1, 1, 2),
    "BF16": GgmlType(30, 1, 2),
    "Q4_0": GgmlType(2, 32, 18),
    "Q4_1": GgmlType(3, 32, 20),
    "Q5_0": GgmlType(6, 32, 22),
    "Q5_1": GgmlType(7, 32, 24),
    "Q8_0": GgmlType(8, 32, 34),
    "Q4_K": GgmlType(12, SUPER, 144),
    "Q5_K": GgmlType(13, SUPER, 176),
    "Q6_K": GgmlType(14, SUPER, 210),
}
OTHERS = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
    41: "Q1_0",
}
"""By number, the names of types that are not read."""
