"""All that a shard imports, bound to the kernels that serve on this machine. Processes that are forked from one that
has imported this begin at once; where a test has asked for other kernels, they forget it and import anew."""

import os
import sys

WISHES = ("KERNELS", "KERNELS_PATH")
for _name in WISHES:
    os.environ.pop(_name, None)  # the process that forks has no use for those of the test that it was started for

from penstock.kernels import native  # noqa: E402
from penstock.shard.startup import run  # noqa: E402, F401

OURS = ("penstock", "tests")


def bind_as_wished() -> None:
    """Forgets our modules if the variables ask for other kernels than those that the ops are bound to."""
    wishes = [os.environ.get(name) or None for name in WISHES]
    if wishes not in ([None, None], ["cpu", None], ["cpu", native.processor_paths()[0]]):
        for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
            del sys.modules[name]
