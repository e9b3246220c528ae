"""The examples of pipelines, served as their first lines say, but both together, and with tiny models."""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from examples.pipelines import assistant, librarian
from penstock.bench.programs.children import free_port
from tests.e2e.server import Server, running
from tests.paths import DEMO_MODEL, ROOT
from tests.tiny_embedders import make_embedder

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples/pipelines"
QUESTION = "def  read(path):\n    return open(path"
GREEDY = {"temperature": 0, "max_tokens": 12}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Starts it with two models, for each takes seconds to start: that which makes vectors ranks by them, too."""
    folder = tmp_path_factory.mktemp("pipelines")
    places = {"chat": DEMO_MODEL, "vectors": make_embedder(folder / "vectors")}
    files = [yaml.safe_load((EXAMPLES / name).read_text()) for name in ("assistant.yaml", "librarian.yaml")]
    models = {model["name"]: model for file in files for model in file["models"] if model["name"] != "ranks"}
    for model in models.values():
        if "model_id" in model:
            model["model_id"] = str(places[model["name"]])
        for step in model.get("pipeline", ()):
            if "python" in step:
                step["python"] = str(EXAMPLES / step["python"])
    listed = {"models": [models.pop("chat"), *models.values()], "aliases": {"ranks": "vectors"}}
    (folder / "models.yaml").write_text(yaml.safe_dump(listed, sort_keys=False))
    port = free_port()
    command = [str(Path(sys.executable).with_name("text-generation-launcher")), "--models", str(folder / "models.yaml"),
               "--hostname", "127.0.0.1", "--port", str(port), "--threads", "1", "--kv-memory", "64MiB"]
    with running(folder, command, port) as server:
        yield server


def ask(server: Server, path: str, **body: Any) -> Any:
    """What a route answers: an object, or the data of all events of a stream."""
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as response:
        content: bytes = response.read()
        if response.headers["content-type"].startswith("text/event-stream"):
            return [json.loads(line[5:]) for line in content.splitlines()
                    if line.startswith(b"data:") and b"[DONE]" not in line]
        return json.loads(content)


def test_steps_stand_around_an_answer(server: Server) -> None:
    prompt = assistant.preprocess(QUESTION)
    alone = ask(server, "/v1/completions", model="chat", prompt=prompt, **GREEDY)["choices"][0]["text"]
    expected = assistant.postprocess(alone)
    piped = {"model": "assistant", "prompt": QUESTION, **GREEDY}
    assert ask(server, "/v1/completions", **piped)["choices"][0]["text"] == expected
    chunks = ask(server, "/v1/completions", **piped, stream=True)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == expected
    answer = ask(server, "/models/assistant/generate", inputs=QUESTION, parameters={"max_new_tokens": 12})
    assert answer == {"generated_text": expected}
    events = ask(server, "/models/assistant/generate_stream", inputs=QUESTION, parameters={"max_new_tokens": 12})
    assert events[-1]["generated_text"] == expected == "".join(event["token"]["text"] for event in events)
    triton = ask(server, "/v2/models/assistant/generate", text_input=QUESTION, exclude_input_in_output=True, **GREEDY)
    assert (triton["model_name"], triton["text_output"]) == ("assistant", expected)


def test_a_chat_s_last_message_is_the_prompt(server: Server) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    cleaned = [messages[0], {"role": "user", "content": assistant.preprocess(QUESTION)}]
    alone = ask(server, "/v1/chat/completions", model="chat", messages=cleaned, **GREEDY)
    piped = ask(server, "/v1/chat/completions", model="assistant", messages=messages, **GREEDY)
    assert piped["model"] == "assistant"
    assert piped["choices"][0]["message"]["content"] == assistant.postprocess(alone["choices"][0]["message"]["content"])


def test_a_refusal_is_told(server: Server) -> None:
    with pytest.raises(urllib.error.HTTPError) as failed:
        ask(server, "/models/assistant/generate", inputs="x" * 2001)
    assert failed.value.code == 422
    assert json.load(failed.value) == {
        "error": "step `python` of assistant: a prompt may have 2000 characters, and this one has 2001",
        "error_type": "pipeline"}


def test_texts_are_found_ranked_and_read(server: Server) -> None:
    texts = librarian.texts(QUESTION)
    found = ask(server, "/v1/embeddings", model="vectors", input=texts, truncate_prompt_tokens=-1)["data"]
    near = librarian.retrieve([each["embedding"] for each in found])
    body = {"query": QUESTION, "documents": near, "truncate_prompt_tokens": -1}
    ranking = ask(server, "/v1/rerank", model="ranks", **body)["results"]
    prompt = "\n".join(["Answer in one sentence, from these texts alone.",
                        *(near[each["index"]] for each in ranking[:2]), QUESTION])
    body = {"model": "chat", "prompt": prompt, "max_tokens": 60, "temperature": 0}
    expected = ask(server, "/v1/completions", **body)["choices"][0]["text"]
    assert ask(server, "/v1/completions", model="librarian", prompt=QUESTION)["choices"][0]["text"] == expected
    events = ask(server, "/models/librarian/generate_stream", inputs=QUESTION)
    assert len([event for event in events if event["token"]["text"]]) > 3  # the answer flows as it comes
    assert events[-1]["generated_text"] == expected


def test_they_are_listed_with_the_state_of_their_models(server: Server) -> None:
    with urllib.request.urlopen(f"{server.url}/v1/models") as response:
        rows = {each["id"]: each for each in json.load(response)["data"]}
    assert (rows["assistant"]["state"], rows["assistant"]["steps"]) == ("ready", ["chat"])
    assert rows["librarian"]["steps"] == ["vectors", "ranks", "chat"]
    with urllib.request.urlopen(f"{server.url}/v2/models/assistant/ready") as response:
        assert json.load(response) == {"name": "assistant", "ready": True}
    for path in ("/v1/embeddings", "/v1/messages"):
        with pytest.raises(urllib.error.HTTPError) as failed:
            ask(server, path, model="assistant", input="a", max_tokens=1, messages=[{"role": "user", "content": "a"}])
        assert "the model is a pipeline; it has POST /generate, " in json.load(failed.value)["error"]["message"]
