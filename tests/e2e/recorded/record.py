"""`python -m tests.e2e.recorded.record`: record what the demo model answers now on each instruction path.

All are asked at once and then one after another: answers that depend on that are not written.
"""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.kernels import native
from tests.e2e.recorded.answers import FILE, PATHS, Answers, ask_all, differences, server_on, write


def main() -> None:
    if missing := set(PATHS) - set(native.processor_paths()):
        sys.exit(f"this processor has no {', '.join(sorted(missing))}")
    write({path: record(path) for path in PATHS})
    print(f"{FILE}: {FILE.stat().st_size} bytes")


def record(path: str) -> Answers:
    """The answers on an instruction path. Exits if they depend on what else is asked."""
    with TemporaryDirectory() as folder, server_on(path, Path(folder)) as server:
        answers = asyncio.run(ask_all(server.url))
        alone = asyncio.run(ask_all(server.url, num_at_once=1))
    if found := differences(alone, answers):
        sys.exit("\n".join([f"{path}: asked alone, these are answered otherwise:", *found]))
    return answers


if __name__ == "__main__":
    main()
