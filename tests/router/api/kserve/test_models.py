"""What is told of the server and its models, and the model that a path names."""

import io
from dataclasses import replace
from typing import Any

import orjson
import pytest

from penstock.router.api.http.access import Access
from penstock.router.keys import Keys
from penstock.system.release import VERSION
from tests.eventually import until
from tests.pooling_fleet import CLASSIFIER, RERANKER
from tests.router.api import conftest
from tests.router.api.conftest import Server, Start
from tests.router.api.kserve.conftest import BASE, StartPooling, told

ALWAYS = "`model`: demo is the server's first model, which is always loaded"


async def test_the_server(server: Server) -> None:
    status, answer = await told(server, "/v2")
    assert status == 200
    assert (answer["name"], answer["version"]) == ("penstock", VERSION)
    assert "binary_tensor_data" in answer["extensions"]
    assert await told(server, "/v2/health/live") == (200, {"live": True})
    assert await told(server, "/v2/health/ready") == (200, {"ready": True})
    assert await told(server, f"{BASE}/ready") == (200, {"name": "demo", "ready": True})


async def test_a_server_without_shards_lives_and_is_not_ready(server: Server) -> None:
    server.fleet.may_open.clear()
    server.fleet.is_lost.set()
    await until(lambda: not server.groups.has_group)
    assert await told(server, "/v2/health/live") == (200, {"live": True})
    for path in ("/v2/health/ready", f"{BASE}/ready"):
        assert await told(server, path) == (503, {"error": "the shards are being started"})
    assert (await told(server, "/v2/repository/index", {}))[1][0]["state"] == "UNAVAILABLE"
    assert await told(server, "/v2/repository/index", {"ready": True}) == (200, [])
    server.fleet.may_open.set()


async def test_a_model_that_makes_text(server: Server) -> None:
    status, answer = await told(server, BASE)
    assert status == 200
    assert (answer["name"], answer["versions"]) == ("demo", ["1"])
    assert {"name": "text_input", "datatype": "BYTES", "shape": [-1]} in answer["inputs"]
    assert {"name": "text_output", "datatype": "BYTES", "shape": [-1]} in answer["outputs"]
    assert (await told(server, f"{BASE}/versions/1"))[1] == answer
    config = (await told(server, f"{BASE}/config"))[1]
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert {"name": "text_output", "data_type": "TYPE_STRING", "dims": [-1]} in config["output"]


@pytest.mark.parametrize(("facts", "output"), [
    (RERANKER, {"name": "scores", "datatype": "FP32", "shape": [-1, 1]}),
    (CLASSIFIER, {"name": "scores", "datatype": "FP32", "shape": [-1, 3]})])
async def test_models_of_scores(start_pooling: StartPooling, facts: Any, output: object) -> None:
    server = await start_pooling(facts)
    assert (await told(server, BASE))[1]["outputs"] == [output]
    assert (await told(server, f"{BASE}/config"))[1]["model_transaction_policy"] == {"decoupled": False}


async def test_a_model_of_vectors(start_pooling: StartPooling) -> None:
    server = await start_pooling()
    assert (await told(server, BASE))[1]["outputs"] == [{"name": "embedding", "datatype": "FP32", "shape": [-1, 8]}]


async def test_the_repository(server: Server) -> None:
    listed = [{"name": "demo", "version": "1", "state": "READY", "reason": ""}]
    assert await told(server, "/v2/repository/index", {"ready": True}) == (200, listed)
    empty = await server.client.post("/v2/repository/index")
    assert await empty.json() == listed
    assert await told(server, "/v2/repository/models/demo/load", {}) == (200, {})
    assert await told(server, "/v2/repository/models/other/load", {}) == (
        404, {"error": "The model `other` does not exist"})
    assert await told(server, "/v2/repository/models/demo/unload", {"parameters": {"unload_dependents": True}}) == (
        400, {"error": ALWAYS})
    status, answer = await told(server, "/v2/repository/models/demo/load", {"parameters": {"config": "{}"}})
    assert status == 400
    assert "`parameters` can't have `config`" in answer["error"]


@pytest.mark.parametrize("name", ["org/name", "org%2Fname"])
async def test_names_with_slashes(start: Start, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "INFO", replace(conftest.INFO, model_id="org/name"))
    server = await start()
    for suffix in ("", "/", "/ready", "/config", "/versions/1", "/versions/1/ready", "/versions/1/"):
        response = await server.client.get(f"/v2/models/{name}{suffix}")
        assert response.status == 200, suffix
        assert (await response.json())["name"] == "org/name"
    status, answer = await told(server, f"/v2/models/{name}/generate", {"text_input": "Say it"})
    assert (status, answer["model_name"]) == (200, "org/name")
    assert (await told(server, f"/v2/repository/models/{name}/load", {}))[0] == 200


async def test_paths_of_nothing_and_the_wrong_method(server: Server) -> None:
    assert (await told(server, f"{BASE}/versions/2"))[0] == 404
    assert (await told(server, "/v2/models/other/config"))[1] == {"error": "The model `other` does not exist"}
    for path in (f"{BASE}/generate", f"{BASE}/infer/", f"{BASE}/versions/1/generate_stream"):
        response = await server.client.get(path)
        assert (response.status, response.headers["allow"]) == (405, "POST")
        assert "is for POST. Given: GET" in (await response.json())["error"]


async def test_keys(start: Start) -> None:
    server = await start(access=Access(api_keys=Keys(("secret",))))
    body = {"text_input": "Say it"}
    for path in (f"{BASE}/generate", f"{BASE}/infer", "/v2/repository/models/demo/load"):
        status, answer = await told(server, path, body)
        assert (status, answer) == (401, {"error": "The API key is missing or wrong"})
    assert (await told(server, BASE))[0] == 200
    response = await server.client.post(
        f"{BASE}/generate", data=orjson.dumps(body), headers={"authorization": "Bearer secret"})
    assert response.status == 200


async def test_pages_of_other_sites_send_no_forms(server: Server) -> None:
    body, foreign = orjson.dumps({"text_input": "Say it"}), {"origin": "https://elsewhere.example"}
    for kind, status in [("text/plain", 415), ("application/json", 200)]:
        response = await server.client.post(f"{BASE}/generate", data=body, headers={**foreign, "content-type": kind})
        assert response.status == status
    bare = await server.client.post(
        f"{BASE}/generate", data=body, headers=foreign, skip_auto_headers=["content-type"])
    assert bare.status == 415


async def test_bodies_that_can_not_be_read(server: Server) -> None:
    for data, headers, status in [(b"{", {}, 400), (b"[]", {}, 400), (b"{}", {"content-encoding": "gzip"}, 415),
                                  (io.BytesIO(b"x" * 3_000_000), {}, 413)]:
        response = await server.client.post(f"{BASE}/infer", data=data, headers=headers)
        assert response.status == status
        assert list(await response.json()) == ["error"]


async def test_statistics(server: Server) -> None:
    assert (await told(server, f"{BASE}/generate", {"text_input": "Say it"}))[0] == 200
    assert (await told(server, f"{BASE}/generate", {"text_input": ""}))[0] == 400
    status, answer = await told(server, "/v2/models/stats")
    assert status == 200
    [found] = answer["model_stats"]
    assert (found["name"], found["version"], found["inference_count"]) == ("demo", "1", 1)
    assert (found["inference_stats"]["success"]["count"], found["inference_stats"]["fail"]["count"]) == (1, 1)
    assert found["inference_stats"]["compute_infer"]["ns"] > 0
    for path in (f"{BASE}/stats", f"{BASE}/versions/1/stats"):
        assert (await told(server, path))[1] == answer
