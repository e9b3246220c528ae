"""The launcher with a scripted shard in the place of a real one: `python -m penstock.bench.programs.scripted_server`
takes the launcher's flags."""

from collections.abc import Sequence

from penstock.launcher import programs
from penstock.launcher.entry import launcher
from penstock.launcher.processes import Program

_program_of = programs.program_of


def _scripted(name: str, module: str, arguments: Sequence[str]) -> Program:
    return _program_of(name, "bench.programs.scripted_shard" if module == "shard" else module, arguments)


def install() -> None:
    """Has the launcher start scripted shards from now on."""
    programs.program_of = _scripted


if __name__ == "__main__":
    install()
    launcher()
