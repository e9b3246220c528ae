"""`python -m tests.router.grammar.bomb_worker`: compiles and follows the grammar of each line of JSON on its input, and
says how: compiled or refused, in how many seconds of processor time, and with how many bytes of memory more."""

import asyncio
import json
import random
import re
import sys
import time
from pathlib import Path

from penstock.router.grammar.compiler import GrammarCompiler
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec
from tests.router.grammar.grammar_driver import draw, make_compiler

STEPS = 60


def memory(name: str) -> int:
    """Returns a line of this process's status, in bytes."""
    [kilobytes] = re.findall(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(kilobytes)


def forget_peak() -> None:
    """Lets the peak of this process's memory begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


async def follow(compiler: GrammarCompiler, kind: str, text: str) -> dict[str, object]:
    forget_peak()
    memory_before, time_before = memory("VmRSS"), time.process_time()
    outcome = "followed"
    try:
        draw(await compiler.compile(GrammarSpec(kind, text)), random.Random(1), max_tokens=STEPS)
    except GrammarError as error:
        outcome = str(error)
    return {"outcome": outcome, "seconds": time.process_time() - time_before, "bytes": memory("VmHWM") - memory_before}


async def main() -> None:
    compiler = make_compiler()
    await compiler.compile(GrammarSpec("regex", "[ab]"))  # which waits for the tokenizer
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(await follow(compiler, *json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
