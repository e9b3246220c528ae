"""A model that answers as a script says. It reads its prompts as a real one does: out of the blocks that plans name."""

from collections import defaultdict
from collections.abc import Callable, Mapping

import tokenizers

from penstock.contract.row import Row

Answer = Callable[[str], str]
"""Says by the text of a prompt how the model answers it."""


def by_last(answers: Mapping[str, str]) -> Answer:
    """Returns the answers to prompts by what they say: that one's whose key stands last in the prompt. So the result of
    a tool has an answer of its own, and a request that is sent again the same one. The key "" is that of all others."""
    def answer(prompt: str) -> str:
        # "" gives way to those that are in the prompt, whose places are 0 or more, but not to others, at -1.
        return answers[max(answers, key=lambda key: prompt.rfind(key) if key else -0.5)]
    return answer


class ScriptedModel:
    """Gives the tokens of an answer one by one, and `eos_id` behind them. Several prompts of an `answer` are known by
    their slots, and what a prompt shares with earlier ones by its blocks."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, answer: Answer, eos_id: int, block_size: int) -> None:
        self.prompts: list[str] = []
        """The prompts that were answered, in their order."""
        self._tokenizer = tokenizer
        self._answer = answer
        self._eos_id = eos_id
        self._block_size = block_size
        self._memory: dict[int, list[int]] = defaultdict(lambda: [0] * block_size)
        self._blocks: dict[int, list[int]] = {}
        self._prompt_lengths: dict[int, int] = {}
        self._answers: dict[int, list[int]] = {}

    def read(self, row: Row) -> None:
        """Takes in the tokens of a row, in the order of the plans."""
        if row.initial_state is not None:
            self._blocks[row.slot] = []
            self._prompt_lengths[row.slot] = row.initial_state.prompt_length
            self._answers.pop(row.slot, None)
        self._blocks[row.slot] += row.new_blocks
        sampled = [self._token_at(row.slot, row.start)] if row.from_last_sample else []
        for position, token_id in enumerate((*sampled, *row.token_ids), row.start):
            block, place = divmod(position, self._block_size)
            self._memory[self._blocks[row.slot][block]][place] = token_id

    def token(self, row: Row) -> int:
        """Returns the token behind the last of a row, which was read."""
        return self._token_at(row.slot, row.end)

    def _token_at(self, slot: int, position: int) -> int:
        ids = self._answers.get(slot)
        if ids is None:
            ids = self._answers[slot] = self._ids(self._prompt(slot))
        number = position - self._prompt_lengths[slot]
        return ids[number] if number < len(ids) else self._eos_id

    def _prompt(self, slot: int) -> str:
        ids = [token_id for block in self._blocks[slot] for token_id in self._memory[block]]
        prompt: str = self._tokenizer.decode(ids[:self._prompt_lengths[slot]], skip_special_tokens=False)
        self.prompts.append(prompt)
        return prompt

    def _ids(self, prompt: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(self._answer(prompt), add_special_tokens=False).ids
        return ids
