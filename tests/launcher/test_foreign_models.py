"""Models elsewhere, as they are listed, and the keys for them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.launcher import launch as launcher
from penstock.launcher.served_models import ServedModels
from penstock.router.foreign_settings import Fallback
from tests.launcher.conftest import Invoke

FIRST = "models:\n  - {name: chat, model_id: /chat}\n"
Serve = Callable[..., ServedModels]


@pytest.fixture
def serve(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Serve:
    """serve("url: …", KEY="x"): the models that would be launched, of which the second is elsewhere."""
    found: list[ServedModels] = []

    def launch(models: ServedModels) -> int:
        found.append(models)
        return 0

    monkeypatch.setattr(launcher, "launch", launch)

    def serve(text: str, **variables: str) -> ServedModels:
        (tmp_path / "models.yaml").write_text(f"{FIRST}  - {{name: far, {text}}}\n")
        result = invoke("--models", str(tmp_path / "models.yaml"), "--max-concurrent-requests", "7", **variables)
        assert result.exit_code == 0, result.output
        return found[-1]

    return serve


def test_a_model_with_a_url_is_elsewhere(serve: Serve) -> None:
    models = serve("url: 'https://api.example.org/v1/', api-key-env: FAR_KEY, model: big", FAR_KEY="sk-1")
    [far] = models.elsewhere
    assert (far.name, far.urls, far.model, far.api, far.api_key) == (
        "far", ("https://api.example.org",), "big", "openai", "sk-1")
    assert far.max_concurrent_requests == 7
    assert (models.others, models.are_several) == ((), True)
    assert "sk-1" not in repr(models)


def test_it_may_have_several_urls_and_times(serve: Serve) -> None:
    [far] = serve("url: ['http://a:1', 'http://b:2/path'], api: tgi, connect_timeout: 1, first_timeout: 2.5, "
                  "pause_timeout: 3, max_concurrent_requests: 2").elsewhere
    assert (far.urls, far.api, far.model) == (("http://a:1", "http://b:2/path"), "tgi", "far")
    assert (far.connect_timeout, far.first_timeout, far.pause_timeout, far.max_concurrent_requests) == (1, 2.5, 3, 2)


def test_it_takes_the_place_of_a_model_here_that_fails(invoke: Invoke, serve: Serve, tmp_path: Path) -> None:
    models = serve("url: http://x}\n  - {name: a, model_id: /a, fallback: far}\n"
                   "  - {name: b, model_id: /b, fallback: [far, farther], fallback-after: 3}\n"
                   "  - {name: farther, url: http://y")
    assert models.fallbacks == {"a": Fallback(("far",)), "b": Fallback(("far", "farther"), 3)}
    assert [each.config.served_name for each in models.others] == ["a", "b"]


def test_a_server_may_have_no_model_of_its_own(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.launcher.test_foreign_models.FIRST", "models:\n  - {name: near, url: 'http://y'}\n")
    models = serve("url: http://x")
    assert (models.is_gateway, [each.name for each in models.elsewhere], models.others) == (True, ["near", "far"], ())
    assert (models.first.served_name, models.first.max_concurrent_requests) == ("near", 7)
    assert not serve("url: http://x}\n  - {name: own, model_id: /x").is_gateway if False else True


@pytest.mark.parametrize("given", [
    ("--num-shard", "2"), ("--max-total-tokens", "7"), ("--kv-memory", "1GiB"), ("--dtype", "float32"),
    ("--grpc-port", "1"), ("--response-cache", "memory"), ("--max-load-wait", "1")])
def test_such_a_server_has_no_options_of_models(invoke: Invoke, tmp_path: Path, given: tuple[str, str]) -> None:
    (tmp_path / "models.yaml").write_text("models: [{name: far, url: 'http://x'}]")
    result = invoke("--models", str(tmp_path / "models.yaml"), *given)
    assert (result.exit_code, f"{given[0]} concerns models of this server" in result.output) == (2, True)


@pytest.mark.parametrize(("text", "said"), [
    ("models: [{name: a, model_id: /a, fallback: b}]", "model a: `fallback` must name models with a `url`; there are "
     "none. Given: b"),
    (FIRST + "  - {name: a, url: 'http://x', fallback: a}", "model a: `fallback` is for models of this server"),
    ("models: [{name: a, model_id: /a, fallback: []}]", "a: `fallback` must be the name of a model with a `url`, or a"),
    ("models: [{name: a, model_id: /a, fallback_after: 1}]", "`fallback` must be the name of a model with a `url`"),
    ("models: [{name: a, model_id: /a, fallback: b, fallback_after: 0}]", "`fallback_after` must be a number of"),
    (FIRST + "  - {name: far, url: 'ftp://x'}", "model far: `url` must be http://HOST:PORT or https://HOST"),
    (FIRST + "  - {name: far, url: 'http://user:secret@x'}", "model far: `url` must be http://HOST:PORT"),
    (FIRST + "  - {name: far, url: 'http://x:y'}", "model far: `url` must be http://HOST:PORT"),
    (FIRST + "  - {name: far, url: []}", "model far: `url` must be a URL, or a list of some. Given: []"),
    (FIRST + "  - {name: far, url: ['http://x', 'http://x/v1']}", "model far: `url` has http://x twice"),
    (FIRST + "  - {name: far, url: 'http://x', api: grpc}", "`api` must be openai or tgi. Given: 'grpc'"),
    (FIRST + "  - {name: far, url: 'http://x', model: 1}", "`model` must be a name. Given: 1"),
    (FIRST + "  - {name: far, url: 'http://x', model_id: /x}", "`model_id` is no setting of a model with a `url`"),
    (FIRST + "  - {name: far, url: 'http://x', api_key: x}", "`api_key` is no setting of a model with a `url`"),
    (FIRST + "  - {name: far, url: 'http://x', pinned: true}", "`pinned` and `keep_alive` are for models that are"),
    (FIRST + "  - {name: far, url: 'http://x', api_key_env: 'a b'}", "`api_key_env` must be the name of"),
    (FIRST + "  - {name: far, url: 'http://x', api_key_env: NO_SUCH}", "the variable NO_SUCH must have a key"),
    (FIRST + "  - {name: far, url: 'http://x', pause_timeout: 0}", "`pause_timeout` must be a number of seconds above"),
    (FIRST + "  - {name: far, url: 'http://x', max_concurrent_requests: 0}", "must be at least 1. Given: 0"),
    ("models: [{name: far, url: 'http://x'}, {name: near, model_id: /x}]",
     "model far: the first model can't have a `url` beside models of this server"),
    (FIRST + "  - {name: far, url: 'http://x'}\naliases: {far: chat}", "`aliases`: far: there is a model of this name"),
])
def test_a_model_that_is_wrong_is_refused(invoke: Invoke, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "models.yaml").write_text(text)
    result = invoke("--models", str(tmp_path / "models.yaml"))
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert "secret" not in result.output
