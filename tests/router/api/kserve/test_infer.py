"""Inference over HTTP, as JSON and as binary data."""

import struct
from typing import Any

import pytest

from penstock.router.api.kserve.tensors import MAX_DIMENSIONS
from tests.pooling_fleet import CLASSIFIER, RERANKER, SPARSE
from tests.router.api.conftest import Server
from tests.router.api.kserve.conftest import BASE, StartPooling, infer_binary, packed, tensor, text, told

TEXT = "Hello wörld, 😀 is all."
HEAD = {"model_name": "demo", "model_version": "1"}


async def infer(server: Server, *inputs: object, **fields: object) -> tuple[int, Any]:
    return await told(server, f"{BASE}/infer", {"inputs": inputs, **fields})


async def outputs(server: Server, *inputs: object, **fields: object) -> dict[str, Any]:
    """Shapes and data of the outputs, by their names."""
    status, answer = await infer(server, *inputs, **fields)
    assert status == 200, answer
    return {each["name"]: (each["datatype"], each["shape"], each["data"]) for each in answer["outputs"]}


async def test_texts_are_made_of_texts(server: Server) -> None:
    status, answer = await infer(server, text("Say it"), id="7", parameters={"exclude_input_in_output": True})
    assert (status, answer) == (200, {"id": "7", **HEAD, "outputs": [
        {"name": "text_output", "datatype": "BYTES", "shape": [1], "data": [TEXT]}]})


async def test_several_texts_in_rows_and_in_a_column(server: Server) -> None:
    both = ["Say it", "And more"]
    answers = [f"{each}{TEXT}" for each in both]
    assert await outputs(server, text(*both)) == {"text_output": ("BYTES", [2], answers)}
    column = tensor("text_input", "BYTES", [2, 1], [[each] for each in both])
    assert await outputs(server, column) == {"text_output": ("BYTES", [2, 1], answers)}
    rows = [tensor("max_tokens", "INT32", [2, 1], [[2], [2]]), tensor("stop_words", "BYTES", [2, 2], [["a", "b"]] * 2)]
    assert (await outputs(server, column, *rows))["text_output"][2] == ["Say itHello", "And moreHello"]
    found = await outputs(server, column, tensor("n", "INT32", [1, 1], [[2]]), tensor("temperature", "FP32", [1], [1]))
    assert found["text_output"][1] == [2, 2]


async def test_settings_as_tensors_as_vllms_object_and_as_parameters(server: Server) -> None:
    short = {"text_output": ("BYTES", [1], ["Say itHello"])}
    assert await outputs(server, text("Say it"), tensor("max_tokens", "INT32", [1, 1], [[2]])) == short
    assert await outputs(
        server, text("Say it"), tensor("sampling_parameters", "BYTES", [1], ['{"max_tokens": "2"}'])) == short
    assert await outputs(server, text("Say it"), parameters={"max_tokens": 2}) == short
    assert await outputs(server, text("Say it"), tensor("stop_words", "BYTES", [1, 2], [["", " wör"]]),
                         tensor("stop", "BOOL", [1, 1], [[False]])) == short


async def test_token_ids_in_and_out(server: Server) -> None:
    ids = await server.tokenizer.encode("Say it")
    given = tensor("input_ids", "INT64", [1, len(ids)], [list(ids)])
    found = await outputs(server, given, parameters={"max_tokens": 3}, outputs=[{"name": "output_ids"}])
    assert found["output_ids"][:2] == ("INT32", [1, 3])
    told = await outputs(server, given, parameters={"return_num_input_tokens": True})
    assert told["text_output"][2] == [TEXT]
    assert told["num_input_tokens"] == ("UINT32", [1], [len(ids)])
    masked = tensor("attention_mask", "INT64", [1, len(ids)], [[0, *[1] * (len(ids) - 1)]])
    less = await outputs(server, given, masked, outputs=[{"name": "num_input_tokens"}])
    assert less == {"num_input_tokens": ("UINT32", [1], [len(ids) - 1])}


async def test_binary_data_in_and_out(server: Server) -> None:
    """As tritonclient sends it, in which a switch is one byte."""
    data = packed("Say it")
    content = {
        "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1],
                    "parameters": {"binary_data_size": len(data)}},
                   tensor("max_tokens", "INT32", [1], [2]),
                   {"name": "exclude_input_in_output", "datatype": "BOOL", "shape": [1],
                    "parameters": {"binary_data_size": 1}}],
        "parameters": {"binary_data_output": True}}
    answer, found = await infer_binary(server, content, data + b"\1")
    assert found == packed("Hello")
    assert answer["outputs"] == [{"name": "text_output", "datatype": "BYTES", "shape": [1],
                                  "parameters": {"binary_data_size": len(found)}}]
    asked = [{"name": "text_output", "parameters": {"binary_data": False}}]
    answer, found = await infer_binary(server, {**content, "outputs": asked}, data + b"\1")
    assert (answer["outputs"][0]["data"], found) == (["Hello"], b"")


@pytest.mark.parametrize(("inputs", "sentence"), [
    ([], "`text_input` or `input_ids` must be among the inputs, and not both. Given: none"),
    ([text("A"), tensor("input_ids", "INT32", [1], [1])], "not both"),
    ([text("A"), text("B")], "`inputs` must have each name once. Given: `text_input` twice"),
    ([text("A"), tensor("colour", "INT32", [1], [1])], "the model has no input `colour`"),
    ([tensor("text_input", "STRING", [1], ["A"])], "`text_input` (STRING [1]) must have one of the datatypes BOOL"),
    ([tensor("text_input", "BYTES", [2], ["A"])], "`text_input` (BYTES [2]) must have 2 values. Given: 1"),
    ([tensor("text_input", "BYTES", [1], [5])],
     "`text_input` (BYTES [1]) must have values of its datatype. Given: integer `5`"),
    ([tensor("text_input", "INT32", [1], [5])], "`text_input` (INT32 [1]) must have the datatype BYTES"),
    ([tensor("text_input", "BYTES", [1, 2], ["A", "B"])], "must have the shape [n] or [n, 1]"),
    ([tensor("text_input", "BYTES", [-1], ["A"])], "must have a shape of 1 to 8 numbers >= 0"),
    ([tensor("text_input", "BYTES", [1] * (MAX_DIMENSIONS + 1), ["A"])], "must have a shape of 1 to 8 numbers >= 0"),
    ([{"name": "text_input", "datatype": "BYTES", "shape": [1]}], "must have `data`, or `binary_data_size`"),
    ([text("A"), tensor("seed", "INT8", [1], [300])],
     "`seed` (INT8 [1]) must have values that fit its datatype. Given: 300"),
    ([tensor("text_input", "BYTES", [2, 1], ["A", "B"]), tensor("seed", "INT32", [2, 1], [1, 2])],
     "`seed` (INT32 [2, 1]) must have equal rows"),
    ([text("A"), tensor("sampling_parameters", "BYTES", [1], ["{"])], "must be one text, an object of JSON"),
    ([tensor("input_ids", "FP32", [1], [1.5])], "must have one of the datatypes INT32, INT64"),
    ([tensor("input_ids", "INT32", [1], [8192])], "`input_ids` must have token ids < 8192"),
    ([tensor("input_ids", "INT32", [1], [-1])], "must have token ids >= 0 and <= 4294967295. Given: -1"),
    ([tensor("input_ids", "UINT64", [2], [1, 1 << 63])], "Given: 9223372036854775808"),
    ([tensor("input_ids", "INT32", [1 << 60, 0], [])], "`input_ids` cannot be empty"),
    ([tensor("input_ids", "INT32", [1], [1]), tensor("attention_mask", "INT32", [2], [1, 1])],
     "`attention_mask` (INT32 [2]) must have the shape of `input_ids`, [1]"),
    ([{**text("A"), "parameters": {"shared_memory_region": "x"}}], "`shared_memory_region` of the tensor `text_input`"),
])
async def test_what_breaks_a_rule_is_refused_by_its_name(
    server: Server, inputs: list[object], sentence: str
) -> None:
    status, answer = await infer(server, *inputs)
    assert status == 400
    assert sentence in answer["error"]


async def test_outputs_that_the_model_has_not(server: Server) -> None:
    status, answer = await infer(server, text("A"), outputs=[{"name": "logits"}])
    assert status == 400
    assert answer["error"].endswith("Given: `logits`")


@pytest.mark.parametrize(("size", "data", "header", "sentence"), [
    (5, b"abcd", None, "must have a `binary_data_size` >= 0 and <= 4"),
    (4, b"\0\0\0\0x", None, "`binary_data_size` of all inputs must be the 5 bytes behind the JSON. Given: 4"),
    (4, b"\5\0\0\0", None, "value 0 ends behind its 4 bytes of data"),
    (3, b"\5\0\0", None, "value 0 ends behind its 3 bytes of data"),
    (5, b"\1\0\0\0\xff", None, "must have texts in UTF-8, which value 0 is not"),
    (8, b"\0\0\0\0\0\0\0\0", None, "`text_input` (BYTES [1]) must have 1 values. Given: 2"),
    (4, b"\0\0\0\0", "0", "value 0 ends behind its"),
    (4, b"\0\0\0\0", "1000", "`Inference-Header-Content-Length` must be >= 0 and <="),
    (4, b"\0\0\0\0", "x", "`Inference-Header-Content-Length` must be >= 0 and <="),
])
async def test_binary_data_that_can_not_be_read(
    server: Server, size: int, data: bytes, header: str | None, sentence: str
) -> None:
    content = b'{"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":%d}}]}'
    content %= size
    response = await server.client.post(f"{BASE}/infer", data=content + data, headers={
        "Inference-Header-Content-Length": header or str(len(content))})
    assert response.status == 400
    assert sentence in (await response.json())["error"]


async def test_a_body_of_one_text_alone(server: Server) -> None:
    response = await server.client.post(
        f"{BASE}/infer", data=packed("Say it"), headers={"Inference-Header-Content-Length": "0"})
    content = await response.read()
    assert content[int(response.headers["Inference-Header-Content-Length"]):] == packed(f"Say it{TEXT}")


async def test_vectors_of_texts_and_of_token_ids(start_pooling: StartPooling) -> None:
    server = await start_pooling()
    found = await outputs(server, text("A text", "Another"))
    assert found["embedding"][:2] == ("FP32", [2, 8])
    embeddings = (await told(server, "/embed", {"inputs": ["A text", "Another"]}))[1]
    assert found["embedding"][2] == [number for vector in embeddings for number in vector]
    content = {"inputs": [text("A text", "Another")], "outputs": [
        {"name": "embedding", "parameters": {"binary_data": True}}]}
    answer, data = await infer_binary(server, content, b"")
    assert answer["outputs"][0]["parameters"] == {"binary_data_size": 64}
    assert list(struct.unpack("<16f", data)) == pytest.approx(found["embedding"][2])
    short = await outputs(server, tensor("input_ids", "INT32", [1, 3], [[5, 6, 7]]), parameters={"dimensions": 4})
    assert short["embedding"][:2] == ("FP32", [1, 4])


async def test_scores_of_labels(start_pooling: StartPooling) -> None:
    server = await start_pooling(CLASSIFIER)
    found = await outputs(server, text("A text", "Another"))
    assert found["scores"][:2] == ("FP32", [2, 3])
    assert sum(found["scores"][2][:3]) == pytest.approx(1)
    raw = await outputs(server, text("A text", "Another"), parameters={"raw_scores": True})
    assert sum(raw["scores"][2][:3]) != pytest.approx(1)


async def test_scores_of_texts_for_a_query(start_pooling: StartPooling) -> None:
    server = await start_pooling(RERANKER)
    query, texts = tensor("query", "BYTES", [1], ["What?"]), tensor("texts", "BYTES", [2], ["This", "That"])
    found = await outputs(server, query, texts)
    ranks = (await told(server, "/rerank", {"query": "What?", "texts": ["This", "That"]}))[1]
    assert found["scores"][:2] == ("FP32", [2, 1])
    assert found["scores"][2] == pytest.approx([score for _, score in sorted(tuple(each.values()) for each in ranks)])
    for inputs, sentence in [((query,), "`texts` must be among the inputs"), ((texts,), "`query` must be among"),
                             ((tensor("query", "BYTES", [2], ["A", "B"]), texts), "`query` must be one text"),
                             ((tensor("query", "BYTES", [1], [""]), texts), "`query` cannot be empty"),
                             ((query, texts, text("A")), "no input `text_input` beside query, texts")]:
        status, answer = await infer(server, *inputs)
        assert status == 400
        assert sentence in answer["error"]


async def test_what_a_model_does_not_do(start_pooling: StartPooling) -> None:
    server = await start_pooling()
    pair = [tensor("query", "BYTES", [1], ["A"]), tensor("texts", "BYTES", [1], ["B"])]
    cases: list[tuple[list[Any], dict[str, Any], str]] = [
        (pair, {}, "the model ranks no documents"),
        ([text("A")], {"parameters": {"dimensions": 9}}, "dimensions"),
        ([text("A")], {"parameters": {"normalize": "no"}}, "normalize: invalid type"),
        ([text("A")], {"parameters": {"task": "embed"}}, "`task` is not supported"),
        ([text(*"ABCDE")], {}, "batch size 5 > maximum allowed batch size 4"),
        ([text("A")], {"outputs": [{"name": "text_output"}]}, "Given: `text_output`"),
    ]
    for inputs, fields, sentence in cases:
        status, answer = await infer(server, *inputs, **fields)
        assert status == 400, answer
        assert sentence in answer["error"]
    sparse = await start_pooling(SPARSE)
    assert "the model makes no vectors of texts" in (await infer(sparse, text("A")))[1]["error"]
