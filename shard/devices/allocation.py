"""Sets how torch takes a GPU's memory, for which it reads the environment: before torch is imported, and only where
the user has set nothing.

Segments that grow, of pages that are mapped to them as they are needed, hold a step of any size after steps of others,
where segments of fixed sizes are left in pieces. Captured graphs have segments of their own, which go on likewise.
NCCL would by itself register the memory that a captured exchange reads, for its peers to reach, and takes a segment of
many pages for one piece: exchanges in graphs would read what is not there. So it is told to copy, as it does outside of
graphs. Nothing else here hands a GPU's memory to another process.
"""

import os

ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""The first is the older name, which torch prefers where both are set."""
GROWING = "expandable_segments:True"


def prepare() -> None:
    """Sets how memory is taken, unless the user has said anything about it."""
    given = [os.environ[name] for name in ALLOCATOR if name in os.environ]
    if not given:
        os.environ[ALLOCATOR[-1]] = GROWING
    if not given or GROWING in given[0].replace(" ", ""):
        os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")
