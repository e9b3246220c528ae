"""A server that is guarded, as a user starts it."""

import json
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.server import Server, serve

KEY = "s3cret"
SECRETS = ("API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY")
SCHEMA = {"type": "json", "value": {"type": "object"}}


def ask(server: Server, path: str, body: object = None, key: str | None = KEY) -> tuple[int, bytes]:
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(server.url + path, data, headers), timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def secrets(server: Server) -> dict[str, set[str]]:
    """By module, the SECRETS in the environments of the processes that run it."""
    return {process.cmdline()[3]: {name for name in SECRETS if name in process.environ()}
            for process in server.processes()}


@pytest.mark.slow
def test_a_guarded_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("AIP_PREDICT_ROUTE", "/predict")
    keys = tmp_path / "keys"
    keys.write_text("from-the-file\n")
    with serve(tmp_path, "--api-key-file", str(keys), "--metrics-key", "watcher", "--disable-grammar-support",
               "--strict-streaming-errors", "--payload-limit", "1000") as server:
        assert KEY not in str([process.cmdline() for process in server.processes()])
        assert secrets(server) == {
            "penstock.shard": set(), "penstock.router": {"API_KEY"}, "penstock.router.chat.sandbox": set()}
        parameters = {"max_new_tokens": 3}
        instances = {"instances": [{"inputs": "def f(", "parameters": parameters}]}
        assert ask(server, "/predict", instances, key=None) == (401, b"")
        assert ask(server, "/predict", instances)[0] == 200
        assert ask(server, "/generate", {"inputs": "def f(", "parameters": parameters}, key="S3CRET") == (401, b"")
        status, answer = ask(server, "/generate", {"inputs": "a", "parameters": {"grammar": SCHEMA}})
        assert (status, json.loads(answer)["error"]) == (422, "Input validation error: grammar is not supported")
        status, answer = ask(server, "/generate_stream", {"inputs": ""})
        assert (status, json.loads(answer)["error"]) == (422, "Input validation error: `inputs` cannot be empty")
        assert ask(server, "/generate", {"inputs": "a" * 1000})[0] == 413
        for path in ("/health", "/ping", "/readyz", "/livez", "/v1/models", "/"):
            assert ask(server, path, key=None)[0] == 200, path
        for path in ("/info", "/metrics", "/docs"):
            assert [ask(server, path, key=key)[0] for key in (None, KEY, "watcher")] == [401, 200, 200], path
        body = {"inputs": "def f(", "parameters": parameters}
        assert ask(server, "/generate", body, key="from-the-file")[0] == 200
        keys.write_text("another\n")
        server.process.send_signal(signal.SIGHUP)
        while "SIGHUP: there are 2 API keys now" not in server.log.read_text():
            time.sleep(0.05)
        found = [ask(server, "/generate", body, key=key)[0] for key in ("from-the-file", "another", KEY)]
        assert found == [401, 200, 200]
        assert KEY.encode() not in ask(server, "/info")[1] + ask(server, "/metrics")[1]
    assert KEY not in server.log.read_text()
