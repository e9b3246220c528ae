"""Speculative decoding step by step: guesses are verified by one step of the model, and no answer changes.

    python examples/lectures/speculative_decoding.py

A step that computes several tokens takes hardly longer than one that computes one, for it reads the weights once. So
something quick guesses the next tokens, and the model computes its own choice behind each. Two rules say what is kept:

- Leviathan et al. (2023): a guess x is kept with the probability min(1, p(x) / q(x)), where the model gives it p and
  the guesser q; in place of the first that is not, a token is drawn from what p has beyond q. What comes has the
  distribution of the model, but is another draw.
- Penstock: the model's choice at a position is a function of the seed and the position (sampling.py). A guess is kept
  if it is that choice. What comes is the very answer that comes without guesses.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Choose = Callable[[Sequence[int]], int]
"""What the model chooses behind the tokens so far."""
Guess = Callable[[Sequence[int], int], list[int]]
"""So many tokens that may follow."""


def verify(tokens: Sequence[int], guesses: Sequence[int], choose: Choose) -> list[int]:
    """Returns what one step of the model adds: the guesses that are its own choices, and the choice behind these."""
    added: list[int] = []
    for guess in guesses:
        added.append(choose([*tokens, *added]))
        if added[-1] != guess:
            return added
    return [*added, choose([*tokens, *added])]


def generate(tokens: list[int], number: int, choose: Choose, guess: Guess, most: int) -> tuple[list[int], list[int]]:
    """Returns the next tokens, and how many each step added; each guesses at most so many."""
    begin, added = len(tokens), []
    while (left := begin + number - len(tokens)) > 0:
        new = verify(tokens, guess(tokens, min(most, left - 1)), choose)
        tokens = [*tokens, *new]
        added.append(len(new))
    return tokens[begin:], added


def look_up(tokens: Sequence[int], most: int, width: int = 2) -> list[int]:
    """Guesses what followed the last `width` tokens when they came before."""
    last = list(tokens[-width:])
    for start in range(len(tokens) - width - 1, -1, -1):
        if list(tokens[start:start + width]) == last:
            return list(tokens[start + width:start + width + most])
    return []


def accept(guess: int, p: Tensor, q: Tensor, uniform: float, generator: torch.Generator) -> int:
    """Returns the token that Leviathan's rule makes of a guess; the model gives tokens the probabilities p, the guesser
    q, [V] each."""
    if uniform < float(p[guess] / q[guess]):
        return guess
    return int(torch.multinomial((p - q).clamp(min=0), 1, generator=generator))


def drawn_by_rule(p: Tensor, q: Tensor, number: int, seed: int = 0) -> tuple[Tensor, float]:
    """Returns the shares of the tokens that come of so many guesses by the rule, and the share of kept guesses."""
    generator = torch.Generator().manual_seed(seed)
    guesses = torch.multinomial(q, number, replacement=True, generator=generator).tolist()
    uniform = torch.rand(number, generator=generator).tolist()
    tokens = [accept(guess, p, q, each, generator) for guess, each in zip(guesses, uniform, strict=True)]
    kept = sum(token == guess for token, guess in zip(tokens, guesses, strict=True)) / number
    return torch.bincount(torch.tensor(tokens), minlength=len(p)) / number, kept


def verse(tokens: Sequence[int]) -> int:
    """A model for this example: it repeats a verse of seven tokens, but for every tenth position."""
    return 90 if len(tokens) % 10 == 0 else len(tokens) % 7


def main() -> None:
    prompt = [verse(range(place)) for place in range(9)]
    plain, steps = generate(prompt, 24, verse, lambda tokens, most: [], 0)
    guessed, added = generate(prompt, 24, verse, look_up, 4)
    print("without guesses:", *plain, f" {len(steps)} steps")
    print("with guesses:   ", *guessed, f" {len(added)} steps of", *added, "tokens")
    p, q = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.3, 0.3, 0.4])
    found, kept = drawn_by_rule(p, q, 20_000)
    print("model:", *(f"{each:.3f}" for each in p.tolist()), " guesser:", *(f"{each:.3f}" for each in q.tolist()),
          " by the rule:", *(f"{each:.3f}" for each in found.tolist()))
    print(f"kept: {kept:.3f}, the sum of the lesser of each two: {float(torch.minimum(p, q).sum()):.3f}")


if __name__ == "__main__":
    main()
