"""Configurations of quantised checkpoints that somebody made to do harm: a sentence, or formats, before long."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.shard.models.keys import ModelConfigError
from penstock.shard.models.model_options import AS_STORED
from penstock.shard.models.reading import read_model_config
from tests.shard.models.test_quantization import AWQ, BASE, FP8, GPTQ, INTEGERS, NF4, compressed

LINEARS = [f"model.layers.{layer}.{linear}" for layer in range(32) for linear in (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
    "mlp.down_proj")] + ["lm_head", "model.embed_tokens"]
MAX_SECONDS = 5.0
PATTERNS = (r"(a+)+$", r"([a-z._0-9]+)+x", r"(.*a){30}", r"(?:(?:.*){50}){50}", r"(a)\1", r"(?!(?:[a-z.]|[a-z])+$)x",
            "(" * 3000, "a{9999}", "[" * 100, "(?<=a)b", "q_proj|" * 3000, "(?:.?){99}" * 60, r"(?:\w*\d*\.?)*!",
            ".{99}")
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.just(2**70), st.floats(allow_nan=False), st.text(max_size=9),
              st.sampled_from(PATTERNS)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
    max_leaves=6)
TEXTS = st.lists(st.one_of(st.sampled_from(PATTERNS), st.text("alm_proj.*+?()|[]{}^$\\1,=!<:", max_size=30)),
                 max_size=30)
MARKED = TEXTS.map(lambda texts: [f"re:{text}" for text in texts])
MANY = st.tuples(st.sampled_from(PATTERNS), st.integers(1, 1000)).map(
    lambda each: [f"re:{each[0]}{number}" for number in range(each[1])])
CONFIGS = st.one_of(
    st.tuples(st.sampled_from((GPTQ, AWQ, FP8, NF4, compressed())), st.dictionaries(st.sampled_from((
        "quant_method", "bits", "group_size", "weight_block_size", "config_groups", "ignore", "dynamic", "format",
        "modules_to_not_convert", "modules_in_block_to_quantize", "desc_act", "sparsity_config")), VALUES,
        max_size=3)).map(lambda each: each[0] | each[1]),
    st.tuples(st.sampled_from((AWQ, FP8)), st.one_of(TEXTS, MARKED, MANY)).map(
        lambda each: each[0] | {"modules_to_not_convert": each[1]}),
    st.one_of(MARKED, MANY).map(lambda texts: compressed() | {"ignore": texts}),
    st.one_of(MARKED, MANY).map(lambda texts: compressed(a={"targets": texts, "weights": INTEGERS})),
    TEXTS.map(lambda texts: GPTQ | {"dynamic": {f"-:{text}": {} for text in texts}}))


@pytest.mark.parametrize("count", [15, pytest.param(300, marks=pytest.mark.slow)])
def test_a_sentence_or_formats_before_long(tmp_path: Path, count: int) -> None:
    @settings(max_examples=count, deadline=None, database=None)
    @given(CONFIGS)
    def read(quantization: dict[str, Any]) -> None:
        (tmp_path / "config.json").write_text(json.dumps(BASE | {"quantization_config": quantization}))
        begin = time.process_time()
        try:
            format_of = read_model_config(tmp_path, AS_STORED).quantization.format_of
        except ModelConfigError as error:
            is_sentence = 10 < len(str(error)) < 10_000
        else:
            is_sentence = all(format_of(linear) is not None for linear in LINEARS)
        assert is_sentence
        assert time.process_time() - begin < MAX_SECONDS

    read()
