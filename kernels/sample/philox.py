"""Computes Philox4x32-10, the counter-based random number generator of Salmon et al., "Parallel Random Numbers: As Easy
as 1, 2, 3" (SC 2011), on 32-bit words held in int64 tensors."""

from torch import Tensor

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

Counter = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: Counter, key: tuple[Tensor, Tensor]) -> Counter:
    """Returns four random words for each counter and key.

    All are int64 tensors of values below 2³² whose shapes broadcast: a word that is the same for a whole row is
    passed as [R, 1] and stays that small for as long as the rounds let it.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # the product's upper half is wrong in its sign's bits only, and the mask takes those away
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1 = ((p1 >> 32) & _WORD) ^ (c1 ^ k0), p1 & _WORD
        c2, c3 = ((p0 >> 32) & _WORD) ^ (c3 ^ k1), p0 & _WORD
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3
