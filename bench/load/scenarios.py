"""The parts of a load, which are sent one after the other: one, or those of a scenario."""

from dataclasses import dataclass

from tokenizers import Tokenizer

from penstock.bench.load.measurement import Lengths
from penstock.bench.load.prompts import PromptSource, RandomPrompts

SCENARIOS = {"lecture": (Lengths(51, 1), Lengths(232, 1), Lengths(228, 26))}
"""Lengths of prompts and answers by the name that `--scenario` takes. In `lecture` the second less the first is what a
longer prompt costs, and the third less the second what tokens cost behind the first."""


@dataclass(frozen=True)
class Part:
    """Prompts to send, and the most tokens of each answer; None leaves them to the prompts. A scenario's part has the
    lengths that it asks for."""

    prompts: PromptSource
    output_tokens: int | None
    lengths: Lengths | None = None


def parts_of(scenario: str, seed: int, tokenizer: Tokenizer | None) -> list[Part]:
    """Returns the parts of a scenario. Their prompts begin with different words, so that no prefix is cached."""
    return [Part(RandomPrompts(lengths.prompt, seed + number, tokenizer), lengths.output, lengths)
            for number, lengths in enumerate(SCENARIOS[scenario])]
