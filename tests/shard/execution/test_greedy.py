"""Greedy answers of the demo model in float32 are those of transformers, on one shard and on two."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from tests.shard.ranks import make_config, run
from tests.shard.step_programs import Request, batched
from tests.tiny_models import DEMO_MODEL

NUM_TOKENS = 64
EOS = 2
OPENINGS = (
    "Once upon a time there was", "The little dog", "def main():", "What is the capital of France?", "1 2 3 4 5 6",
    "In the year 1905", "She said: \"I don't", "Ärger über Öl", "import numpy as np\n", "Dear Sir or Madam,",
)
ENDINGS = ("", " a", " and then he went to the house of", "\n\n", " " + "the river and the hill " * 12)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """50, of 1 to some 90 tokens; any five neighbours begin alike and differ in length."""
    tokenizer = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    return [tokenizer.encode(opening + ending).ids for opening in OPENINGS for ending in ENDINGS]


def expected(prompts: list[list[int]]) -> list[list[int]]:
    """What transformers generates, prompt by prompt, up to and with the first end token."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(DEMO_MODEL, dtype=torch.float32)
    outputs = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        answer = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NUM_TOKENS, do_sample=False, eos_token_id=EOS,
            pad_token_id=EOS)
        outputs.append(answer[0, len(prompt):].tolist())
    return outputs


def answers(prompts: list[list[int]], folder: Path, world_size: int) -> list[list[int]]:
    """All prompts at once, in chunks, cut at the first end token."""
    program = batched([Request(prompt, NUM_TOKENS) for prompt in prompts], seed=5, num_blocks=512)
    (outputs,) = run(make_config(DEMO_MODEL, "float32"), [program], folder, world_size)
    tokens = [[sampled.token_id for sampled in output] for output in outputs]
    return [ids[:ids.index(EOS) + 1] if EOS in ids else ids for ids in tokens]


@pytest.mark.slow
def test_answers_are_those_of_transformers(prompts: list[list[int]], tmp_path: Path, every_case: bool) -> None:
    assert len(prompts) == 50
    chosen = prompts if every_case else prompts[::6]
    generated = expected(chosen)
    assert answers(chosen, tmp_path, world_size=1) == generated
    assert answers(chosen, tmp_path, world_size=2) == generated
