"""A fault that is planted into a copy of the tree."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """`old` occurs once in `file`; `tests` are arguments of pytest."""

    area: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def is_compiled(self) -> bool:
        return self.file.startswith("kernels/csrc/")
