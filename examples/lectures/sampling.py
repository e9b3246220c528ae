"""Top-k sampling, and the Gumbel-max form in which Penstock draws: a token is a function of its seed and its position.

    python examples/lectures/sampling.py

To draw from a softmax one usually sums up the probabilities until they pass a random number. Adding noise to each score
and taking the largest gives the same distribution (Gumbel 1954): score - log(E), with E exponentially distributed. If
the noise is a function of (seed, token, position), nothing else decides what is drawn: not the batch, not the number of
processes, not what was drawn before. `penstock.kernels.sample` draws so.
"""

import torch
from torch import Tensor

from penstock.kernels.sample import Biases, History, SampleParameters, sample
from penstock.kernels.sample.parameters import COLUMNS, PARAMETERS

WORDS = ("the", "a", "water", "dam", "pen", "stock")
LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.5, -0.5, -1.0])


def top_k(logits: Tensor, k: int) -> Tensor:
    """Returns logits [V] of which only the k largest, and what equals the least of these, are left."""
    return torch.where(logits >= logits.topk(k).values[-1], logits, -torch.inf)


def gumbel_max(logits: Tensor, uniform: Tensor) -> Tensor:
    """Returns the tokens that are drawn from logits [V] by noise [N, V] that is uniform between 0 and 1."""
    return (logits + -torch.log(-torch.log(uniform))).argmax(dim=-1)


def shares(tokens: Tensor) -> Tensor:
    """Returns the share of each token in what was drawn."""
    return torch.bincount(tokens, minlength=len(WORDS)) / len(tokens)


def draw(logits: Tensor, k: int, seed: int, positions: Tensor) -> Tensor:
    """Returns what Penstock draws at each position of an answer, if the logits [V] were always the same."""
    rows = len(positions)
    given = {each.name: each.off for each in PARAMETERS} | {"do_sample": True, "top_k": k, "seed": seed, "mask": -1,
                                                           "prompt_length": 0}
    columns = {name: torch.full((rows,), given[name], dtype=dtype) for name, dtype in COLUMNS.items() if name in given}
    offsets = torch.zeros(rows + 1, dtype=torch.int64)
    none = torch.empty(0, dtype=torch.int64)
    return sample(logits.expand(rows, -1).contiguous(), SampleParameters(**columns, position=positions),
                  History(none, offsets), Biases(none, torch.empty(0), offsets),
                  torch.empty(0, -(-len(logits) // 32), dtype=torch.int32)).ids


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    number = 100_000
    print(f"{'':>12}", *(f"{word:>6}" for word in WORDS))
    for k in (6, 3):
        left = top_k(LOGITS, k)
        by_noise = shares(gumbel_max(left, torch.rand(number, len(WORDS), generator=generator)))
        by_penstock = shares(draw(LOGITS, k, seed=7, positions=torch.arange(number)))
        for name, row in (("softmax", left.softmax(0)), ("Gumbel-max", by_noise), ("Penstock", by_penstock)):
            print(f"{name:>12}", *(f"{share:6.3f}" for share in row.tolist()), f"  k = {k}")
    first = draw(LOGITS, 6, seed=7, positions=torch.arange(8)).tolist()
    print("positions 0 to 7:", *(WORDS[token] for token in first))
    alone = draw(LOGITS, 6, seed=7, positions=torch.tensor([5])).tolist()
    print("position 5 alone:", *(WORDS[token] for token in alone))


if __name__ == "__main__":
    main()
