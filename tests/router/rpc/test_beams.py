"""Beam searches over gRPC."""

import grpc
import pytest

from penstock.protos import penstock_pb2 as pb
from penstock.router.grammar.compiler import GrammarCompiler
from tests.fakes import FACTS
from tests.router.engine.mirror_fleet import MirrorFleet
from tests.router.rpc.conftest import Rpc, StartRpc, error_of


async def test_answers_have_scores_and_the_best_comes_first(rpc: Rpc) -> None:
    message = await rpc.generate(num_beams=3, num_return_sequences=3, length_penalty=2.0, max_new_tokens=2,
                                 early_stopping=pb.EARLY_STOPPING_TRUE, details=True)
    every = [message.details, *(each.details for each in message.details.best_of_sequences)]
    for details in every:
        assert details.score == pytest.approx(sum(token.logprob for token in details.tokens) / 4)
    assert len(every) == 3
    assert [details.score for details in every] == sorted((details.score for details in every), reverse=True)
    assert not (await rpc.generate(max_new_tokens=2, details=True)).details.HasField("score")
    await rpc.until_no_block_is_held()


async def test_fewer_answers_come_where_no_more_follow_the_grammar(
    start_rpc: StartRpc, grammars: GrammarCompiler
) -> None:
    rpc = await start_rpc(grammars=grammars, make_fleet=lambda script: MirrorFleet(FACTS))
    message = await rpc.generate(num_beams=4, num_return_sequences=4, max_new_tokens=4, details=True,
                                 grammar=pb.Grammar(type="regex", text="[.,]"))
    [other] = message.details.best_of_sequences
    assert sorted([message.generated_text, other.generated_text]) == [",", "."]
    await rpc.until_no_block_is_held()


async def test_what_is_refused(rpc: Rpc) -> None:
    assert await error_of(rpc.stream(num_beams=2)) == (
        grpc.StatusCode.INVALID_ARGUMENT, "Input validation error: `num_beams` is not supported when streaming tokens: "
        "which tokens an answer has is known when the search ends", "validation")
    assert await error_of(rpc.generate(num_beams=2, num_return_sequences=3, details=True)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "Input validation error: `num_return_sequences` must be >= 1 and <= `num_beams`, 2. Given: 3", "validation")
    assert await error_of(rpc.generate(num_beams=2, temperature=0.5)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "Input validation error: `temperature` is not supported with `num_beams`: beam search draws no tokens",
        "validation")
    assert rpc.server.fleet.plans == []
