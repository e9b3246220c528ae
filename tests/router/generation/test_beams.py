"""The bounds of beam searches that depend on the model."""

from dataclasses import replace

import pytest

from penstock.router.errors import ValidationError
from penstock.router.generation.beams import check_beams
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.spec import GenerationSpec
from tests.fakes import FACTS, LIMITS


def test_the_models_own_end_tokens_count_among_the_candidates() -> None:
    def check(num_ends: int, **more: object) -> None:
        spec = GenerationSpec("a", Parameters.model_validate({"num_beams": 128, "stop_token_ids": [0, 1], **more}))
        check_beams(spec, LIMITS, replace(FACTS, eos_token_ids=frozenset(range(num_ends))), is_stream=False)

    check(7)
    with pytest.raises(ValidationError, match=r"must be <= 1024. Given: 128 \* \(1 \+ 8\) = 1152"):
        check(8)
    check(8, ignore_eos=True)
    with pytest.raises(ValidationError, match="1152"):  # a grammar ends by one of them
        check(8, ignore_eos=True, grammar={"type": "regex", "value": "a"})
