"""What a key may use in a time, over gRPC."""

from pathlib import Path

import grpc

from penstock.router.api.http.access import Access
from penstock.router.generation.around import Around
from penstock.router.keys import Keys
from tests.router.rpc.conftest import StartRpc, error_of, request


async def test_more_calls_than_a_key_may_make_are_refused(start_rpc: StartRpc, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# name: alice\n# rate: 1/h\nsk-a\n")
    rpc = await start_rpc(Access(Keys((), tmp_path / "keys")), make_around=lambda metrics: Around())
    key = [("authorization", "Bearer sk-a")]
    await rpc.stub.Generate(request(max_new_tokens=2), metadata=key)
    code, message, kind = await error_of(rpc.stub.Generate(request(max_new_tokens=2), metadata=key))
    assert (code, kind) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "overloaded")
    assert message.startswith("`alice`, whose key this is, may send 1 requests per h, and has: there is room again in ")
