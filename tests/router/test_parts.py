"""Settings of texts that vectors and scores are made of, and limits of models that make these."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.contract.facts import Facts
from penstock.launcher.config import LauncherConfig
from penstock.launcher.launch import main
from penstock.router.config import RouterConfig
from penstock.router.limits import MAX_PROMPTS, MAX_TEXTS, LimitError, Limits
from penstock.router.parts import check_of_texts, text_rules
from penstock.system.arguments import InvalidArgument
from tests.fakes import FACTS
from tests.pooling_fleet import EMBEDDER

DECODER = replace(EMBEDDER, is_whole=False, num_blocks=64)


def config(path: Path = Path("/m"), *arguments: str) -> RouterConfig:
    launcher = LauncherConfig.from_options(main.make_context("launcher", ["--model-id", "m", *arguments]).params)
    return launcher.for_router(model_dir=path, tokenizer_json=path / "t", revision=None, shard_sockets=[],
                               listen_fd=3, notices_fd=4)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    said = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(said))
    return tmp_path


@pytest.mark.parametrize(("arguments", "prompt"), [
    ([], "query: "), (["--default-prompt-name", "document"], ""), (["--default-prompt", "a "], "a ")])
def test_the_prompt_before_each_text(checkpoint: Path, arguments: list[str], prompt: str) -> None:
    rules = text_rules(config(checkpoint, *arguments))
    assert rules.default_prompt == prompt
    assert [*rules.prompts] == ["query", "document"]


def test_a_prompt_that_is_not_there_is_refused(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(InvalidArgument, match=r"`default_prompt_name` must be one of .* query, document. Given: x"):
        text_rules(config(checkpoint, "--default-prompt-name", "x"))
    with pytest.raises(InvalidArgument, match=r"of which there are none. Given: x"):
        text_rules(config(tmp_path_factory.mktemp("empty"), "--default-prompt-name", "x"))


@pytest.mark.parametrize("arguments", [["--auto-truncate"], ["--default-prompt", "a"], ["--default-prompt-name", "a"]])
def test_settings_of_texts_are_not_for_models_that_generate(arguments: list[str]) -> None:
    check_of_texts(config(Path("/m"), *arguments), EMBEDDER)
    with pytest.raises(InvalidArgument, match=r"is for models that make vectors or scores of texts, and m generates"):
        check_of_texts(config(Path("/m"), *arguments), FACTS)


def resolved(facts: Facts, *arguments: str) -> Limits:
    return Limits.resolve(config(Path("/m"), *arguments), facts)


def test_a_text_may_have_as_many_tokens_as_the_context() -> None:
    for facts in (EMBEDDER, replace(DECODER, num_blocks=1024)):
        limits = resolved(facts)
        assert (limits.max_input_tokens, limits.max_total_tokens) == (512, 512)
        assert limits.within(facts) == limits
    assert resolved(DECODER, "--max-input-tokens", "100").max_input_tokens == 100
    assert resolved(EMBEDDER, "--max-total-tokens", "100").max_input_tokens == 100


def test_a_whole_text_fits_into_a_step() -> None:
    long = replace(EMBEDDER, context_length=8192)
    assert resolved(long).max_batch_prefill_tokens == resolved(long).max_input_tokens == 8192
    assert resolved(replace(long, numerics="gpu-sm90/x")).max_input_tokens == 4096
    limits = resolved(long, "--max-batch-tokens", "1024")
    assert (limits.max_batch_prefill_tokens, limits.max_input_tokens, limits.max_total_tokens) == (1024, 1024, 1024)
    with pytest.raises(LimitError, match=r"must be <= `max_batch_prefill_tokens`.* Given: 2048 and 1024"):
        resolved(long, "--max-batch-tokens", "1024", "--max-input-tokens", "2048")


def test_names_of_tei() -> None:
    limits = resolved(EMBEDDER, "--max-batch-tokens", "1024", "--max-batch-requests", "7")
    assert (limits.max_batch_prefill_tokens, limits.max_slots) == (1024, 7)


@pytest.mark.parametrize(("facts", "wanted"), [(FACTS, MAX_PROMPTS), (EMBEDDER, MAX_TEXTS)])
def test_how_many_texts_a_request_may_have(facts: Facts, wanted: int) -> None:
    assert resolved(facts).max_client_batch_size == wanted
    assert resolved(facts, "--max-client-batch-size", "9").max_client_batch_size == 9


def test_nothing_is_guessed_where_nothing_is_generated() -> None:
    with pytest.raises(LimitError, match=r"`speculate` must be 0: the model generates no text. Given: 2"):
        resolved(EMBEDDER, "--speculate", "2")


def refused(**given: Any) -> str:
    with pytest.raises(InvalidArgument) as caught:
        config(Path("/m"), *(part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", value)))
    return str(caught.value)


def test_settings_that_contradict_each_other() -> None:
    assert "can't be given together" in refused(default_prompt="a", default_prompt_name="b")
    assert "can't be given together" in refused(max_batch_tokens="8", max_batch_prefill_tokens="8")
    assert "can't be given together" in refused(max_batch_requests="8", max_batch_size="8")
    assert "`pooling` is not for the task generate" in refused(task="generate", pooling="cls")
