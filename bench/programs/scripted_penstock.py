"""The command `penstock` with scripted shards in the place of real ones."""

from collections.abc import Sequence

from penstock.launcher import programs
from penstock.launcher.entry import penstock
from penstock.launcher.processes import Program

_program_of = programs.program_of


def _scripted(name: str, module: str, arguments: Sequence[str]) -> Program:
    return _program_of(name, "bench.programs.scripted_shard" if module == "shard" else module, arguments)


if __name__ == "__main__":
    programs.program_of = _scripted
    penstock()
