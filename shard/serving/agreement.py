"""Makes the ranks of a group run the same orders, whatever happens to the router.

Each rank gets its orders over a stream of its own, and a router that is killed may have written an order to some ranks
only. A rank that ran it alone would wait for ever in the model's first exchange. So no rank runs an order before all
have it: each proposes the order it holds, as four numbers, and all see all proposals.

Equal proposals: the order runs, everywhere. Different ones: some were left behind by a router that is gone, and every
rank can tell which, for a rank that holds `stream_limits` has finished with the stream before it:

- a plan loses. It is dropped, with the stream it came from.
- stream limits are proposed again as long as their stream lasts, until the others have theirs.

A rank that holds an order alone waits for the others to hold one, and they will: the next router opens a stream to
every rank. The wait takes no processor time and stops only the thread that runs steps. Since it can outlast the stream
that the order came from, stream limits are taken only when they were proposed twice: the second time is after the wait,
and the stream was still there. That also tells equal limits of two routers apart; an epoch that no router ever used
before, such as a clock's nanoseconds, does so without relying on the shard having noticed that the old stream ended.

The exchange takes about 0.1 ms a step; a group of one exchanges nothing. The four numbers are the hosts', whatever the
model runs on: while they go round, a GPU goes on with the step before, and no rank queues the next one on its GPU
before all have it.
"""

import threading
import zlib

import torch

from penstock.shard.communication.distributed import Group

RETRY_SECONDS = 0.005


class Agreement:
    """Agrees with the other ranks on each order. All calls come from the thread that runs the steps."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def reach(self, encoded: bytes, opens_stream: bool, stream_ended: threading.Event) -> bool:
        """Returns True when every rank holds this order, by its bytes, and runs it now; False if it was left behind.

        Raises RuntimeError if another rank died.
        """
        if self._group.world_size == 1:
            return True
        is_repeated = False
        while not stream_ended.is_set():
            proposal = [opens_stream, is_repeated, len(encoded), zlib.crc32(encoded)]
            proposals = self._group.all_gather(torch.tensor(proposal, dtype=torch.int64)).tolist()
            is_common = all(other == proposal for other in proposals)
            if is_common and (is_repeated or not opens_stream):
                return True
            if not opens_stream:
                return False
            if not is_common:
                stream_ended.wait(RETRY_SECONDS)
            is_repeated = is_common
        return False
