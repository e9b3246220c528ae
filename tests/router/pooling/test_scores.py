"""Scores that are shown, and ranks."""

import pytest
import torch

from penstock.router.pooling.scores import SIMILARITIES, activated, ranked


def test_the_functions_are_torchs() -> None:
    raw = [-800.0, -3.0, -0.5, 0.0, 1e-9, 2.0, 900.0]
    wanted = torch.tensor(raw, dtype=torch.float64)
    assert activated(raw, "sigmoid") == pytest.approx(wanted.sigmoid().tolist(), rel=1e-14)
    assert activated(raw, "softmax") == pytest.approx(wanted.softmax(0).tolist(), rel=1e-14)
    assert activated(raw, "") == raw


def test_the_highest_score_comes_first_and_equal_ones_keep_their_order() -> None:
    assert ranked([0.5, 2.0, 0.5, -1.0]) == [1, 0, 2, 3]


def test_the_cosine_of_vectors() -> None:
    assert SIMILARITIES["cosine"]([3.0, 4.0], [3.0, 4.0]) == pytest.approx(1)
    assert SIMILARITIES["cosine"]([3.0, 4.0], [-4.0, 3.0]) == 0
    assert SIMILARITIES["cosine"]([0.0, 0.0], [1.0, 0.0]) == 0


@pytest.mark.parametrize("name", SIMILARITIES)
def test_vectors_are_compared_as_sentence_transformers_does(name: str) -> None:
    from sentence_transformers import SimilarityFunction

    one, other = [1.0, -2.0, 0.5], [0.25, 3.0, -1.0]
    [[wanted]] = SimilarityFunction.to_similarity_fn(name)([one], [other]).tolist()
    assert SIMILARITIES[name](one, other) == pytest.approx(wanted)
