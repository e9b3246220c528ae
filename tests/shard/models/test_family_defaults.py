"""Absent keys of config.json say what they do in transformers' own classes."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.families import ARCHITECTURES, ENCODERS, FAMILIES
from penstock.shard.models.families.embedders import EMBEDDERS
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.reading import DEFAULTS, read_model_config
from tests.family_defaults import MODEL_TYPES, OF_THEIR_AUTHORS, TABLE, defaults, keys_that_are_read, render, whole
from tests.family_models import FAMILY_MODELS

OF_TRANSFORMERS = {name: family for name, family in FAMILY_MODELS.items()
                   if family.convert is None or family.model_type not in ("llama", "qwen3_5_text")}
READ = keys_that_are_read()


def read(folder: Path, keys: dict[str, Any]) -> ModelConfig | None:
    """What we make of a config.json; None if it is refused."""
    (folder / "config.json").write_text(json.dumps(keys))
    try:
        return read_model_config(folder)
    except ModelConfigError:
        return None


@pytest.mark.slow
def test_the_table_is_that_of_the_transformers_that_is_installed() -> None:
    assert TABLE.read_text() == render(defaults()), "run python -m tests.family_defaults"


def test_every_architecture_is_in_it() -> None:
    assert {*DEFAULTS} == {*ARCHITECTURES} - {*EMBEDDERS}
    assert {*FAMILIES} == {*MODEL_TYPES} | {*OF_THEIR_AUTHORS} - {*ENCODERS}
    assert {family.model_type for family in OF_TRANSFORMERS.values()} == {*MODEL_TYPES.values()}


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_a_key_that_is_absent_says_what_it_does_in_transformers(tmp_path: Path, name: str) -> None:
    """All but the model's own sizes and switches at once; for one model of a family also each key by itself."""
    family = OF_TRANSFORMERS[name]
    is_first = next(other for other in OF_TRANSFORMERS.values() if other.model_type == family.model_type) is family
    told = family.sizes | family.keys
    complete = whole(family.model_type, told)
    architecture = {key: complete.pop(key) for key in ("architectures", "model_type")}
    refused = []
    for absent in (None, *sorted(READ.intersection(complete) if is_first else ())):
        given = {key: value for key, value in (complete if absent else told).items() if key != absent}
        try:
            theirs = whole(family.model_type, given)
        except Exception:                # of many kinds: without it the others do not fit together
            continue
        ours = read(tmp_path, given | architecture)
        assert ours == read(tmp_path, theirs), f"{name} without {absent}"
        refused += [absent] if ours is None else []
    assert None not in refused
