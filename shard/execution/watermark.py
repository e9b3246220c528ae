"""Marks logits so that a reader who knows the key can find it in the text (Kirchenbauer et al., "A Watermark for Large
Language Models", ICML 2023): the token before each place picks a part of the vocabulary, the green list, to prefer."""

from dataclasses import dataclass

import torch
from torch import Tensor

HASH_KEY = 15485863


@dataclass(frozen=True, slots=True)
class Watermark:
    gamma: float = 0.5                   # the green list's part of the vocabulary
    delta: float = 2.0                   # what its tokens' logits gain

    def add_to(self, logits: Tensor, previous_token: int) -> None:
        """Mark logits, float32 [V], in place, wherever they are."""
        logits[self.green_list(previous_token, len(logits)).to(logits.device)] += self.delta

    def green_list(self, previous_token: int, vocab_size: int) -> Tensor:
        """Returns the tokens that are preferred after `previous_token`, int64 [int(gamma * V)]."""
        generator = torch.Generator().manual_seed(HASH_KEY * previous_token)
        return torch.randperm(vocab_size, generator=generator)[: int(self.gamma * vocab_size)]
