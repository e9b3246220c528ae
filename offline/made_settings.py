"""Settings that are made of arguments which are no settings themselves."""

from collections.abc import Iterator, Mapping
from typing import Any

MADE_BY = {"num_shard": "tensor_parallel_size", "cuda_graphs": "enforce_eager",
           "draft_model_id": "speculative_config"}
"""The arguments of which these settings are made."""


def _ranks(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    sizes = [given.get(name, 1) for name in ("tensor_parallel_size", "pipeline_parallel_size")]
    for name, size in zip(("tensor_parallel_size", "pipeline_parallel_size"), sizes, strict=True):
        if type(size) is not int or size < 1:
            raise ValueError(f"`{name}` must be a number from 1 on. Given: {size!r}")
    yield "num_shard", sizes[0] * sizes[1]
    yield "pipeline_parallel_size", sizes[1]


def _eager(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if given["enforce_eager"]:
        yield "cuda_graphs", (0,)


def _speculative(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Reads vLLM's `speculative_config`: guesses are the text's own, or those of a draft model."""
    if not isinstance(given["speculative_config"], Mapping):
        raise TypeError("`speculative_config` must be a dict, such as {'num_speculative_tokens': 8}. "
                        f"Given: {given['speculative_config']!r:.100}")
    asked = dict(given["speculative_config"])
    method = asked.pop("method", "draft_model" if "model" in asked else "ngram")
    number, model = asked.pop("num_speculative_tokens", None), asked.pop("model", None)
    if asked:
        raise ValueError(f"`{min(asked)}` of `speculative_config` is not taken")
    if method not in ("ngram", "draft_model"):
        raise ValueError("`method` of `speculative_config` must be ngram, for guesses from the text, or draft_model. "
                         f"Given: {method!r}")
    if type(number) is not int or number < 1:
        raise ValueError("`num_speculative_tokens` of `speculative_config` must be a number from 1 on. "
                         f"Given: {number!r}")
    yield "speculate", number
    if method == "draft_model":
        if not isinstance(model, str):
            raise ValueError(f"`model` of `speculative_config` must name the draft model. Given: {model!r}")
        yield "draft_model_id", model


def _seed(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if type(given["seed"]) is not int:
        raise TypeError(f"`seed` must be an integer, or None. Given: {given['seed']!r:.100}")
    return iter(())


def _nothing(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields nothing: the argument is for another part of `LLM`."""
    return iter(())


MADE_OF = {
    "tensor_parallel_size": _ranks, "pipeline_parallel_size": _ranks, "enforce_eager": _eager,
    "speculative_config": _speculative, "enable_lora": _nothing, "tokenizer": _nothing, "seed": _seed}
"""Arguments of which settings are made by a function, which gets all arguments."""
