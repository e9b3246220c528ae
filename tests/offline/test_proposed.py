"""The sampling that a model's files propose."""

from pathlib import Path

import pytest

from penstock import LLM, SamplingParams
from penstock.offline.proposed import FILE, proposed


@pytest.mark.parametrize(("content", "expected"), [
    ('{"temperature": 0.6, "top_p": 0.9, "top_k": 20, "max_new_tokens": 9, "eos_token_id": 2, "min_p": null}',
     SamplingParams(temperature=0.6, top_p=0.9, top_k=20, max_tokens=9)),
    ("{}", SamplingParams()),
    (None, SamplingParams()),
])
def test_what_is_proposed_is_read(tmp_path: Path, content: str | None, expected: SamplingParams) -> None:
    if content is not None:
        (tmp_path / FILE).write_text(content)
    assert proposed(tmp_path) == expected


@pytest.mark.parametrize("content", ["{", "[]", "\udcff"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content, errors="surrogateescape")
    with pytest.raises(ValueError, match=FILE):
        proposed(tmp_path)


def test_a_model_proposes(llm: LLM) -> None:
    params = llm.get_default_sampling_params()
    assert params == SamplingParams()
    params.max_tokens = 3
    assert len(llm.generate("a", params, use_tqdm=False)[0].outputs[0].token_ids) <= 3
