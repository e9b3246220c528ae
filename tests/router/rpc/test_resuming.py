"""Streams of the gRPC API that broke off, and answers that are had again."""

import grpc
import pytest

from penstock.protos import penstock_pb2 as pb
from tests.router.api.resuming import SeededFleet, with_other_numerics
from tests.router.rpc.conftest import Rpc, StartRpc, error_of, request

PARAMETERS = {"do_sample": True, "max_new_tokens": 8, "details": True}


@pytest.fixture
async def rpc(start_rpc: StartRpc) -> Rpc:
    return await start_rpc(make_fleet=SeededFleet)


async def test_a_stream_goes_on(rpc: Rpc) -> None:
    whole = await rpc.stream(**PARAMETERS)
    ids = [event.token.id for event in whole]
    for event in whole:
        event.details.ClearField("prefix_hit_tokens")
    for number, event in enumerate(whole[:-1], 1):
        for known in ([], ids[:number]):
            message = request(**PARAMETERS)
            message.resume_after = event.id
            message.output_ids.extend(known)
            rest = [event async for event in rpc.stub.GenerateStream(message)]
            for other in rest:
                other.details.ClearField("prefix_hit_tokens")
            assert rest == whole[number:]


async def test_an_answer_is_had_again(rpc: Rpc) -> None:
    first = await rpc.generate(**PARAMETERS)
    message = request(**PARAMETERS)
    message.answer = first.answer
    again = await rpc.stub.Generate(message)
    assert (again.answer, again.details.seed) == (first.answer, first.details.seed)
    with_other_numerics(rpc.server)
    code, sentence, kind = await error_of(rpc.stub.Generate(message))
    assert (code, kind) == (grpc.StatusCode.FAILED_PRECONDITION, "another_answer")
    assert sentence.startswith("`answer` names an answer of another model")


async def test_errors_name_the_fields_of_the_message(rpc: Rpc) -> None:
    last = (await rpc.stream(**PARAMETERS))[-1].id
    name, _, count = last.rpartition(".")
    for fields, what in (
            ({"resume_after": "x"}, "`resume_after` must be the `id` of an event, or the `answer`, of an answer"),
            ({"output_ids": [1]}, "`output_ids` is for requests with `resume_after`"),
            ({"resume_after": last, "output_ids": [8192]}, "`output_ids` must have token ids < 8192"),
            ({"resume_after": f"{name}.{int(count) + 1}"}, "`resume_after` counts more events than the answer has"),
            ({"idempotency_key": "k" * 256}, "`idempotency_key` must have 1 to 255 characters")):
        message = request(**PARAMETERS)
        message.MergeFrom(pb.GenerateRequest(**fields))
        assert what in (await error_of(_read(rpc, message)))[1]


async def _read(rpc: Rpc, message: pb.GenerateRequest) -> None:
    async for _ in rpc.stub.GenerateStream(message):
        pass


async def test_a_key_decides_the_seed(rpc: Rpc) -> None:
    message = request(**PARAMETERS)
    message.idempotency_key = "one"
    seeds = [(await rpc.stub.Generate(message)).details.seed for _ in range(2)]
    assert seeds[0] == seeds[1]
    assert (await rpc.generate(**PARAMETERS)).details.seed != seeds[0]
