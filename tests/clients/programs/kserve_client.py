"""KServe's own client, over HTTP and gRPC: against a model that makes text, or one that makes vectors."""

import asyncio
import sys
from collections.abc import Awaitable
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig

PROMPT = "What is machine learning?"


def asked(model: str, *texts: str, **settings: Any) -> InferRequest:
    made = InferInput("text_input", [len(texts)], "BYTES", list(texts))
    return InferRequest(model_name=model, infer_inputs=[made], parameters=settings)


def as_bytes(model: str, *texts: str, **settings: Any) -> InferRequest:
    """Its values follow the JSON."""
    request = asked(model, *texts, **settings)
    request.inputs[0].set_data_from_numpy(np.array([text.encode() for text in texts], dtype=np.object_), True)
    return request


async def fails(call: Awaitable[object], sentence: str) -> None:
    found = None
    try:
        await call
    except Exception as error:
        found = str(error)
    assert found is not None, f"not refused: {sentence}"
    assert sentence in found


def values(response: Any, name: str) -> list[Any]:
    """The values of an output, whichever way they came."""
    [output] = [each for each in response.outputs if each.name == name]
    found = output.as_numpy().reshape(-1).tolist()
    return [each.decode() if isinstance(each, bytes) else each for each in found]


async def over_http(url: str, model: str, kind: str) -> list[Any]:
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await client.is_server_live(url)
    assert await client.is_server_ready(url)
    assert await client.is_model_ready(url, model)
    if kind == "embedder":
        return values(await client.infer(url, asked(model, PROMPT, "Rome"), model_name=model), "embedding")
    request = asked(model, PROMPT, max_tokens=8, exclude_input_in_output=True)
    found = values(await client.infer(url, request, model_name=model), "text_output")
    binary = as_bytes(model, PROMPT, max_tokens=8, exclude_input_in_output=True)
    assert values(await client.infer(url, binary, model_name=model), "text_output") == found
    await fails(client.infer(url, asked(model, PROMPT, max_tokens=0), model_name=model), "`max_tokens`")
    await fails(client.infer(url, asked("other", PROMPT), model_name="other"), "The model `other` does not exist")
    return found


async def over_grpc(target: str, model: str, kind: str) -> list[Any]:
    async with InferenceGRPCClient(target) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready(model)
        if kind == "embedder":
            return values(await client.infer(asked(model, PROMPT, "Rome")), "embedding")
        settings = {"max_tokens": 8, "exclude_input_in_output": True}
        found = values(await client.infer(asked(model, PROMPT, **settings)), "text_output")
        assert values(await client.infer(as_bytes(model, PROMPT, **settings)), "text_output") == found
        await fails(client.infer(asked(model, PROMPT, max_tokens=0)), "`max_tokens`")
        return found


async def main(kind: str, url: str, target: str, model: str) -> None:
    by_http, by_grpc = await over_http(url, model, kind), await over_grpc(target, model, kind)
    assert len(by_http) == len(by_grpc) > 0
    if kind == "embedder":
        assert np.allclose(by_http, by_grpc, atol=1e-6)
    else:
        assert by_http == by_grpc
    print("all passed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
