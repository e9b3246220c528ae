"""NVIDIA's tritonclient, over HTTP and gRPC, and the calls of users of Triton's backends for vLLM and TensorRT-LLM:
against a model that makes text, or one that makes vectors."""

import asyncio
import json
import queue
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import tritonclient.grpc as by_grpc
import tritonclient.grpc.aio
import tritonclient.http as by_http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException

PROMPT = "class ReadPath7:\n    def read_path(self, name):\n        self.path = name\n"
"""The demo model goes on with it for long."""
LENGTH = 12


def post(url: str, body: object) -> Any:
    """What `curl -d` sends, which says that it is a form."""
    with urllib.request.urlopen(url, json.dumps(body).encode()) as response:
        return response.read().decode()


def tensor(module: Any, name: str, value: Any, datatype: str, shape: tuple[int, ...] = (1,)) -> Any:
    kinds = {"BYTES": np.object_, "BOOL": np.bool_, "INT32": np.int32, "FP32": np.float32, "INT64": np.int64}
    made = module.InferInput(name, list(shape), datatype)
    made.set_data_from_numpy(np.array(value, dtype=kinds[datatype]).reshape(shape))
    return made


def asked(module: Any, prompt: str = PROMPT, **inputs: tuple[Any, str]) -> list[Any]:
    return [tensor(module, "text_input", [prompt.encode()], "BYTES"),
            *(tensor(module, name, value, datatype) for name, (value, datatype) in inputs.items())]


def refused(call: Callable[[], object], sentence: str) -> None:
    found = None
    try:
        call()
    except InferenceServerException as error:
        found = str(error)
    assert found is not None, f"not refused: {sentence}"
    assert sentence in found


def states(client: Any, model: str) -> None:
    """Everything but inference, which both kinds of client have."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(model)
    assert client.is_model_ready(model, "1")
    assert client.load_model(model) is None
    refused(lambda: client.unload_model(model), "which is always loaded")
    refused(lambda: client.load_model("other"), "The model `other` does not exist")
    refused(lambda: client.get_model_metadata("other"), "The model `other` does not exist")
    refused(lambda: client.get_model_metadata(model, "7"), "does not exist")


def curls(url: str) -> str:
    """The call of TensorRT-LLM's users, and that of vLLM's."""
    body = {"text_input": PROMPT, "max_tokens": LENGTH, "bad_words": "", "stop_words": ""}
    text = json.loads(post(f"{url}/generate", body))["text_output"]
    vllms = {"text_input": PROMPT, "parameters": {"stream": False, "temperature": 0, "max_tokens": LENGTH}}
    assert json.loads(post(f"{url}/generate", vllms))["text_output"] == text
    events = post(f"{url}/generate_stream", {**body, "stream": True}).split("\n\n")
    parts = [json.loads(event.removeprefix("data: "))["text_output"] for event in events if event]
    assert PROMPT + "".join(parts) == text
    assert len(parts) == LENGTH
    return str(text)


def over_http(address: str, model: str, text: str) -> None:
    client = by_http.InferenceServerClient(address)
    states(client, model)
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.get_model_metadata(model)["outputs"][0]["name"] == "text_output"
    assert client.get_model_config(model)["model_transaction_policy"] == {"decoupled": True}
    assert client.get_model_repository_index()[0]["state"] == "READY"
    assert client.get_inference_statistics(model)["model_stats"][0]["inference_count"] > 0
    inputs = asked(by_http, max_tokens=([LENGTH], "INT32"))
    found = client.infer(model, inputs, request_id="7")
    assert found.as_numpy("text_output")[0].decode() == text
    assert found.get_response()["id"] == "7"
    plain = by_http.InferRequestedOutput("text_output", binary_data=False)
    assert client.infer(model, inputs, outputs=[plain]).as_numpy("text_output")[0] == text
    assert client.async_infer(model, inputs).get_result().as_numpy("text_output")[0].decode() == text
    ids = [tensor(by_http, "input_ids", [[5, 6, 7]], "INT64", (1, 3))]
    outputs = [by_http.InferRequestedOutput("output_ids")]
    found = client.infer(model, ids, outputs=outputs, parameters={"max_tokens": 4})
    assert found.as_numpy("output_ids").shape == (1, 4)
    refused(lambda: client.infer(model, asked(by_http, max_tokens=([0], "INT32"))), "`max_tokens`")
    client.close()


def over_grpc(target: str, model: str, text: str) -> None:
    client = by_grpc.InferenceServerClient(target)
    states(client, model)
    assert "statistics" in client.get_server_metadata().extensions
    assert client.get_model_metadata(model).outputs[0].name == "text_output"
    assert client.get_model_config(model).config.model_transaction_policy.decoupled
    assert client.get_model_repository_index().models[0].state == "READY"
    assert client.get_inference_statistics(model).model_stats[0].inference_count > 0
    found = client.infer(model, asked(by_grpc, max_tokens=([LENGTH], "INT32")), request_id="7")
    assert found.as_numpy("text_output")[0].decode() == text
    assert found.get_response().id == "7"
    refused(lambda: client.infer(model, asked(by_grpc, max_tokens=([0], "INT32"))), "`max_tokens`")
    streamed(client, model, text)
    client.close()


def streamed(client: Any, model: str, text: str) -> None:
    """Two requests of a stream, one token at a time, and one that is refused beside them."""
    results: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: results.put((result, error)))
    for number in ("1", "2"):
        client.async_stream_infer(
            model, asked(by_grpc, stream=([True], "BOOL"), max_tokens=([LENGTH], "INT32")), request_id=number,
            enable_empty_final_response=True)
    texts, open_requests = {"1": PROMPT, "2": PROMPT}, 2
    while open_requests:
        result, error = results.get(timeout=60)
        assert error is None, error
        response = result.get_response()
        texts[response.id] += result.as_numpy("text_output")[0].decode()
        open_requests -= response.parameters["triton_final_response"].bool_param
    assert texts == {"1": text, "2": text}
    client.async_stream_infer(model, asked(by_grpc, max_tokens=([0], "INT32")))
    assert "`max_tokens`" in str(results.get(timeout=60)[1])
    client.stop_stream()


async def as_vllms_sample(target: str, model: str, text: str) -> None:
    """The sample client of Triton's backend for vLLM: settings as a tensor and as parameters, numbers as texts."""
    settings = {"temperature": "0", "top_p": "0.95", "max_tokens": str(LENGTH)}

    async def requests() -> AsyncIterator[dict[str, Any]]:
        module = tritonclient.grpc.aio
        for number in range(2):
            for is_stream in (True, False):
                inputs = asked(module, stream=([is_stream], "BOOL"), exclude_input_in_output=([True], "BOOL"),
                               sampling_parameters=([json.dumps(settings).encode()], "BYTES"))
                yield {"model_name": model, "inputs": inputs, "outputs": [module.InferRequestedOutput("text_output")],
                       "request_id": f"{number}{is_stream}", "parameters": settings}

    client = tritonclient.grpc.aio.InferenceServerClient(target)
    texts: dict[str, str] = {}
    async for result, error in client.stream_infer(requests()):
        assert error is None, error
        number = result.get_response().id
        texts[number] = texts.get(number, PROMPT) + "".join(part.decode() for part in result.as_numpy("text_output"))
    assert texts == dict.fromkeys(("0True", "0False", "1True", "1False"), text)
    await client.close()


def vectors(address: str, target: str, model: str) -> None:
    texts = np.array([b"A penstock leads water.", "Schön, 😀".encode()], dtype=np.object_)
    found = []
    for client, module in ((by_http.InferenceServerClient(address), by_http),
                           (by_grpc.InferenceServerClient(target), by_grpc)):
        made = module.InferInput("text_input", [2], "BYTES")
        made.set_data_from_numpy(texts)
        found.append(client.infer(model, [made]).as_numpy("embedding"))
        client.close()
    assert found[0].dtype == np.float32
    assert found[0].shape[0] == 2
    assert (found[0] == found[1]).all()
    assert np.allclose(np.linalg.norm(found[0], axis=1), 1, atol=1e-5)


def main(kind: str, url: str, target: str, model: str) -> None:
    address = url.removeprefix("http://")
    if kind == "embedder":
        vectors(address, target, model)
    else:
        text = curls(f"{url}/v2/models/{model}")
        over_http(address, model, text)
        over_grpc(target, model, text)
        asyncio.run(as_vllms_sample(target, model, text))
    print("all passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
