import pytest
import torch

from penstock.kernels.sample.philox import philox
from tests.kernels.sampling import draw

# The known answers that the authors publish with their generator.
VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(counter, key, expected):
    counter_words, key_words = ([torch.tensor([word]) for word in words(text)] for text in (counter, key))
    assert [int(word) for word in philox(tuple(counter_words), tuple(key_words))] == words(expected)


def test_known_answers_in_one_batch():
    columns = [torch.tensor(column) for column in zip(*(words(c + " " + k) for c, k, _ in VECTORS), strict=True)]
    result = torch.stack(philox(tuple(columns[:4]), tuple(columns[4:])), dim=1)
    assert result.tolist() == [words(expected) for _, _, expected in VECTORS]


def test_words_broadcast():
    """A row of token ids against a column of positions and seeds is the same as every pair alone."""
    token, zero = torch.arange(50)[None], torch.zeros(1, 1, dtype=torch.int64)
    position, seed = torch.tensor([[0], [7], [2**32 - 1]]), torch.tensor([[3], [2**32 - 1], [9]])
    first = philox((token, position, zero, zero), (seed, zero))[0]
    assert first.shape == (3, 50)
    assert 0 <= first.min() <= first.max() < 2**32
    for row in range(3):
        for column in (0, 1, 49):
            alone = [word.reshape(1) for word in (token[0, column], position[row], zero, zero, seed[row], zero)]
            assert first[row, column] == philox(tuple(alone[:4]), tuple(alone[4:]))[0]


@pytest.mark.parametrize("branch", [0, 1, 2**32 - 1])
@pytest.mark.parametrize("seed", [0, 1, -1, 2**32, 0x123456789ABCDEF, -(2**63)])
def test_compiled_words(seed, branch, cpu_kernels):
    """Among equal logits the largest word wins, whichever it is of tens of thousands."""
    vocabulary, positions = 70_001, (0, 77, 2**32 - 1)
    token, zero = torch.arange(vocabulary)[None], torch.zeros(1, 1, dtype=torch.int64)
    low, high = (torch.tensor([[seed >> shift & 0xFFFFFFFF]]) for shift in (0, 32))
    largest = philox((token, torch.tensor(positions)[:, None], zero + branch, zero), (low, high))[0].argmax(dim=1)
    rows = [{"seed": seed, "position": position, "branch": branch} for position in positions]
    ids, _ = draw(torch.zeros(3, vocabulary), rows)
    assert torch.equal(ids, largest)
    other, _ = draw(torch.full((3, vocabulary), -7.5), [{**row, "top_p": 0.5} for row in rows])
    assert torch.equal(other, largest)
