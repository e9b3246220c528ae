"""Kept answers over gRPC: the trailing metadata tells of them, as the header does in HTTP."""

from tests.router.response_cache.test_answers import cached
from tests.router.rpc.conftest import StartRpc, request


async def test_an_answer_is_kept(start_rpc: StartRpc) -> None:
    rpc = await start_rpc(make_around=cached)
    answers, told = [], []
    for metadata in (None, None, [("cache-control", "no-store")]):
        call = rpc.stub.Generate(request(max_new_tokens=4), metadata=metadata)
        answers.append((await call).generated_text)
        told.append(dict(await call.trailing_metadata()).get("penstock-cache"))
    assert told == ["miss", "hit; age=0", "skipped"]
    assert len({*answers}) == 1


async def test_streams_share_it(start_rpc: StartRpc) -> None:
    rpc = await start_rpc(make_around=cached)
    await rpc.generate(max_new_tokens=4)
    call = rpc.stub.GenerateStream(request(max_new_tokens=4))
    assert len([event async for event in call]) == 4
    assert dict(await call.trailing_metadata())["penstock-cache"] == "hit; age=0"
