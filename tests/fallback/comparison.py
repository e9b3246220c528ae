"""What the fallback makes of a class, beside what transformers' own `generate` does."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import transformers

from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from penstock.shard.fallback.alone import Alone
from penstock.shard.fallback.model import Prepared
from penstock.shard.models.model import TRANSFORMERS
from penstock.shard.startup.bit_trial import keeps_bits
from tests.fallback.checkpoint import make_checkpoint
from tests.shard.ranks import make_config, run_program
from tests.shard.step_programs import Request, alone, batched
from tests.tiny_models import random_ids

PROMPTS = (7, 30)                        # tokens
NUM_BLOCKS = 24                          # more than both take
PAGED = "paged cache"


@dataclass(frozen=True, slots=True)
class Compared:
    """What was found of one class."""

    name: str
    is_equal: bool                       # both prompts are continued with transformers' tokens
    way: str                             # how it is run
    replaced: tuple[tuple[str, int], ...]  # transformers' modules in whose place ours stand, and how many
    has_bits: bool | None                # batched, in pieces, alone and replayed have the same; None: it was not tried
    distinct: int                        # tokens among those generated


def compare(name: str, folder: Path, num_tokens: int, with_bits: bool = False) -> Compared:
    """Makes a checkpoint of a class, and continues two prompts by both. Raises what ends either."""
    path = make_checkpoint(name, folder / name)
    expected = their_tokens(name, path, num_tokens)
    requests = [Request(prompt, num_tokens) for prompt in _prompts(path)]
    with _prepared() as prepared:
        executor = Executor(replace(make_config(path, "float32"), model_impl=TRANSFORMERS), Group())
    together = run_program(executor, batched(requests, 5, NUM_BLOCKS))
    (found,) = prepared
    has_bits = (keeps_bits(executor, Group()) and together == run_program(executor, alone(requests, NUM_BLOCKS))
                if with_bits else None)
    tokens = [[sampled.token_id for sampled in output] for output in together]
    return Compared(
        name, tokens == expected, f"own cache, {found.way.advance.value}" if isinstance(found.way, Alone) else PAGED,
        tuple(sorted(found.counts.items())), has_bits, len({token for output in tokens for token in output}))


def _prompts(path: Path) -> list[list[int]]:
    vocab_size = transformers.AutoConfig.from_pretrained(path).get_text_config(decoder=True).vocab_size
    return [random_ids(length, vocab_size).tolist() for length in PROMPTS]


@torch.no_grad()
def their_tokens(name: str, path: Path, num_tokens: int) -> list[list[int]]:
    """Returns the tokens that transformers' `generate` has after each of the prompts."""
    model = getattr(transformers, name).from_pretrained(path, dtype=torch.float32).eval()
    found = []
    for prompt in _prompts(path):
        given = torch.tensor([prompt])
        generated = model.generate(
            given, attention_mask=torch.ones_like(given), max_new_tokens=num_tokens, min_new_tokens=num_tokens,
            do_sample=False, eos_token_id=1 << 20, pad_token_id=0)
        found.append(generated[0, len(prompt):].tolist())
    return found


class _Kept(logging.Handler):
    """Keeps what the loading of a model tells of it."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared: list[Prepared] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.prepared += [each for each in record.args or () if isinstance(each, Prepared)]


@contextmanager
def _prepared() -> Iterator[list[Prepared]]:
    """Collects the models that are loaded while the block runs."""
    log, kept = logging.getLogger(Prepared.__module__), _Kept()
    level = log.level
    log.addHandler(kept)
    log.setLevel(logging.INFO)
    try:
        yield kept.prepared
    finally:
        log.removeHandler(kept)
        log.setLevel(level)
