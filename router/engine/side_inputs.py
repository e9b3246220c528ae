"""Makes the side inputs of a request's sequence."""

from penstock.contract.pooling import POOLING
from penstock.contract.side_inputs import ADAPTER, TRACE, SideInput, encode_number
from penstock.router.engine.request import Request


def side_inputs_of(request: Request) -> tuple[SideInput, ...]:
    """Returns all that the shards get of a request beside its tokens: the client's side inputs, what is to be
    made of it, the adapter, and the trace's context."""
    made = request.side_inputs
    if request.pooling is not None:
        made += (SideInput(POOLING, request.pooling.encode()),)
    if (adapter := request.adapter) is not None:
        made += (SideInput(ADAPTER, encode_number(adapter.number), adapter.identity),)
    if request.trace is not None:
        made += (SideInput(TRACE, request.trace.context),)
    return made
