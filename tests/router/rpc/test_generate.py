"""Answers over gRPC are those over HTTP."""
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from penstock.protos import penstock_pb2 as pb
from penstock.router.adapters.registry import Registry
from penstock.router.adapters.source import AdapterSource
from penstock.router.generation.float32 import nearest_float32
from penstock.router.generation.parameters import Parameters
from penstock.router.grammar.compiler import GrammarCompiler
from tests.adapter_inputs import number_in
from tests.fakes import LIMITS
from tests.router.adapters.folders import write_adapter
from tests.router.api.tgi.test_grammars import DrawingFleet, is_valid
from tests.router.rpc.conftest import Rpc, StartRpc, request

REASONS = {"length": pb.FINISH_REASON_LENGTH, "eos_token": pb.FINISH_REASON_EOS_TOKEN,
           "stop_sequence": pb.FINISH_REASON_STOP_SEQUENCE}


def tokens(messages: Any) -> list[tuple[Any, ...]]:
    return [(token.id, token.text, token.logprob, token.special) for token in messages]


def tokens_of_json(contents: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(token["id"], token["text"], nearest_float32(token["logprob"]), token["special"]) for token in contents]


@pytest.mark.parametrize("parameters", [
    {}, {"max_new_tokens": 3}, {"stop": ["all"], "max_new_tokens": 50}, {"return_full_text": True, "seed": 3},
    {"do_sample": True, "seed": 2**64 - 1, "temperature": 0.7, "top_p": 0.9, "top_k": 5, "typical_p": 0.5,
     "min_p": 0.25, "repetition_penalty": 1.25, "frequency_penalty": 0.5, "presence_penalty": -0.5, "watermark": True,
     "max_new_tokens": 4, "min_tokens": 2, "ignore_eos": True, "stop_token_ids": [5, 6], "truncate": 2,
     "logit_bias": {7: 1.5, 8: -100.0}, "top_n_tokens": 3, "decoder_input_details": True}])
async def test_as_over_http(start_rpc: StartRpc, parameters: dict[str, Any]) -> None:
    rpc = await start_rpc(limits=replace(LIMITS, enable_prefill_logprobs=True))
    message = await rpc.generate(**parameters, details=True)
    theirs = {**parameters, "logit_bias": {str(key): bias for key, bias in parameters.get("logit_bias", {}).items()}}
    content = await rpc.server.generate(**theirs, details=True)
    details = content["details"]
    assert message.generated_text == content["generated_text"]
    assert tokens(message.details.tokens) == tokens_of_json(details["tokens"])
    assert message.details.finish_reason == REASONS[details["finish_reason"]]
    assert message.details.generated_tokens == details["generated_tokens"]
    assert (message.details.seed if message.details.HasField("seed") else None) == details["seed"]
    assert [tokens(top.tokens) for top in message.details.top_tokens] == [
        tokens_of_json(top) for top in details.get("top_tokens", [])]
    assert [(token.id, token.text, token.logprob if token.HasField("logprob") else None)
            for token in message.details.prefill] == [
        (token["id"], token["text"], token["logprob"] and nearest_float32(token["logprob"]))
        for token in details["prefill"]]
    ours, http = rpc.server.fleet.initial_states
    assert ours.sampling == http.sampling


def test_every_parameter_has_a_field() -> None:
    assert set(pb.Parameters.DESCRIPTOR.fields_by_name) == set(Parameters.model_fields)


async def test_without_details(rpc: Rpc) -> None:
    message = await rpc.generate(max_new_tokens=2)
    assert not message.HasField("details")
    assert message.generated_text


async def test_without_parameters_it_is_sampled(rpc: Rpc) -> None:
    await rpc.stub.Generate(pb.GenerateRequest(inputs="a"))
    await rpc.stub.Generate(request("a"))
    firsts = rpc.server.fleet.initial_states
    assert [first.sampling.do_sample for first in firsts] == [True, False]


async def test_the_best_of_several(rpc: Rpc) -> None:
    message = await rpc.generate(best_of=2, do_sample=True, details=True, max_new_tokens=3)
    [other] = message.details.best_of_sequences
    assert message.details.seed != other.details.seed
    assert len(other.details.tokens) == len(message.details.tokens) == 3


async def test_several_answers(rpc: Rpc) -> None:
    message = await rpc.generate(n=2, do_sample=True, seed=5, details=True, max_new_tokens=3)
    [other] = message.details.best_of_sequences
    assert message.details.seed == other.details.seed == 5
    assert not message.best_of_sequences
    plain = await rpc.generate(n=2, do_sample=True, seed=5, max_new_tokens=3)
    assert [each.generated_text for each in (plain, *plain.best_of_sequences)] == [
        message.generated_text, other.generated_text]


async def test_a_stream(rpc: Rpc) -> None:
    events = await rpc.stream(details=True, max_new_tokens=5, top_n_tokens=2, return_full_text=True)
    whole = await rpc.generate(details=True, max_new_tokens=5, top_n_tokens=2, return_full_text=True)
    assert [event.index for event in events] == [1, 2, 3, 4, 5]
    assert tokens(event.token for event in events) == tokens(whole.details.tokens)
    assert [tokens(event.top_tokens) for event in events] == [tokens(top.tokens) for top in whole.details.top_tokens]
    *others, last = events
    assert not any(event.HasField("generated_text") or event.HasField("details") for event in others)
    assert last.generated_text == whole.generated_text
    assert (last.details.finish_reason, last.details.generated_tokens, last.details.input_length) == (
        whole.details.finish_reason, 5, whole.details.input_length)


@pytest.mark.parametrize("grammar", [
    pb.Grammar(type="json", text='{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]'
                                 '}}, "required": ["a", "b"], "additionalProperties": false}'),
    pb.Grammar(type="regex", text='\\{"a":[0-9]{1,3},"b":"x"\\}'),
    pb.Grammar(type="choice", json='["{\\"a\\":1,\\"b\\":\\"x\\"}", "{\\"a\\":2,\\"b\\":\\"y\\"}"]')])
async def test_grammars(start_rpc: StartRpc, grammars: GrammarCompiler, grammar: Any) -> None:
    rpc = await start_rpc(grammars=grammars, make_fleet=DrawingFleet)
    message = await rpc.generate(grammar=grammar, max_new_tokens=200)
    assert is_valid(message.generated_text)


async def test_tokens_of_a_text(rpc: Rpc) -> None:
    message = await rpc.stub.Tokenize(pb.TokenizeRequest(inputs="Hello wörld"))
    response = await rpc.server.post("/tokenize", {"inputs": "Hello wörld"})
    assert [{"id": token.id, "text": token.text, "start": token.start, "stop": token.stop}
            for token in message.tokens] == await response.json()
    assert message.tokens


async def test_info(rpc: Rpc) -> None:
    told = MessageToDict(await rpc.stub.Info(pb.InfoRequest()), preserving_proto_field_name=True)
    info = await (await rpc.server.client.get("/info")).json()
    assert {name: str(info[name]) for name in told} == {name: str(value) for name, value in told.items()}
    assert set(pb.InfoResponse.DESCRIPTOR.fields_by_name) == set(told)


async def test_both_apis_count(rpc: Rpc) -> None:
    await rpc.generate(max_new_tokens=3)
    await rpc.stream(max_new_tokens=3)
    series = rpc.server.series()
    assert series["tgi_request_success"] == series["tgi_request_count"] == 2
    for name in ("Generate", "GenerateStream"):
        assert series[f'penstock_requests{{route="/penstock.v1.TextGeneration/{name}",status="200"}}'] == 1


async def test_an_adapter_answers_whole_and_streamed(start_rpc: StartRpc, tmp_path: Path) -> None:
    source = AdapterSource("mine", write_adapter(tmp_path), "mine")
    rpc = await start_rpc(adapters=Registry([source], max_bytes=10_000))
    assert (await rpc.generate(adapter_id="mine", max_new_tokens=3)).generated_text
    assert len(await rpc.stream(adapter_id="mine", max_new_tokens=3)) == 3
    await rpc.generate(max_new_tokens=3)
    assert [rpc.server.fleet.adapters.get(number_in(state)) for state in rpc.server.fleet.initial_states] == [
        str(tmp_path), str(tmp_path), None]
