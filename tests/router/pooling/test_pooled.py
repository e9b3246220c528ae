"""What came for one text."""

from array import array

from penstock.router.pooling.pooled import Pooled


def test_the_vectors_of_tokens_have_the_size_that_came() -> None:
    found = Pooled(array("f", [1, 2, 3, 4, 5, 6]), num_tokens=2)
    assert [vector.tolist() for vector in found.of_tokens()] == [[1, 2, 3], [4, 5, 6]]
