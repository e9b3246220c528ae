"""How a family's model is run to be compared with transformers', and with itself run otherwise: test_families.py
demands that these be equal, `python -m tests.models` writes down whether they are."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from penstock.contract.sampling import Sampling
from penstock.kernels import native
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.model_options import AS_STORED, ModelOptions
from tests.family_models import reference
from tests.shard.ranks import Outputs, make_config, run, run_each
from tests.shard.scheduler_with_executor import Counted, Traffic, run_traffic
from tests.shard.step_programs import Request, alone, batched
from tests.tiny_models import WINDOW, prompt_logits, random_ids

VOCAB = 160
IDS = random_ids(60, VOCAB)
GREEDY_PROMPTS = (7, 30)
NUM_GREEDY = 200
CHUNKS = (1, 3, 16, 17)
LONGEST = 70                             # more than three windows, across block borders


def ours(path: Path, dtype: torch.dtype, options: ModelOptions = AS_STORED) -> Tensor:
    """Returns our logits after each of IDS, float32 [T, V]."""
    logits = prompt_logits(Decoder.load(path, dtype, Group(), options=options), IDS)
    assert logits is not None
    assert logits.dtype == torch.float32
    return logits


@torch.no_grad()
def theirs(path: Path, dtype: torch.dtype) -> Tensor:
    """Returns the logits that transformers computes after each of IDS, as float32 [T, V]."""
    logits: Tensor = reference(path, dtype)(IDS[None]).logits[0]
    return logits.float()


def our_greedy_tokens(path: Path, folder: Path, number: int = NUM_GREEDY) -> list[list[int]]:
    """Returns so many tokens after each of two prompts, which run together."""
    program = batched([Request(IDS[:length].tolist(), number) for length in GREEDY_PROMPTS], 5)
    (outputs,) = run(make_config(path, "float32"), [program], folder)
    return [[sampled.token_id for sampled in output] for output in outputs]


def their_greedy_tokens(path: Path, number: int = NUM_GREEDY) -> list[list[int]]:
    """Returns transformers' tokens after the same prompts."""
    decoder, found = reference(path, torch.float32), []
    for length in GREEDY_PROMPTS:
        given = IDS[None, :length]
        generated = decoder.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=number,
                                     min_new_tokens=number, do_sample=False, eos_token_id=VOCAB, pad_token_id=0)
        found.append(generated[0, length:].tolist())
    return found


def typical_requests() -> list[Request]:
    """Returns prompts around a window's length, greedy and sampled in turns."""
    rng = np.random.default_rng(11)
    lengths = [LONGEST, 1, WINDOW - 1, WINDOW, WINDOW + 1, 50]
    samplings = [Sampling(), Sampling(do_sample=True, seed=2, temperature=0.8, top_p=0.9)]
    return [
        Request(rng.integers(3, VOCAB, length).tolist(), int(rng.integers(2, 8)), samplings[index % 2])
        for index, length in enumerate(lengths)]


def one_by_one(config: ShardConfig, requests: Sequence[Request], folder: Path) -> Outputs:
    """Runs every request by itself, its prompt in one step: what all others are compared with."""
    (outputs,) = run(config, [alone(requests)], folder)
    return outputs


def together(config: ShardConfig, requests: Sequence[Request], folder: Path) -> Outputs:
    """Runs all requests in batches, their prompts in odd chunks."""
    (outputs,) = run(config, [batched(requests, 1)], folder)
    return outputs


def first_in_chunks(config: ShardConfig, requests: Sequence[Request], folder: Path) -> list[Outputs]:
    """Runs the first request alone, its prompt in chunks of each size."""
    return run(config, [alone(requests[:1], chunk=chunk) for chunk in CHUNKS], folder)


def twice_with_losses(config: ShardConfig, requests: Sequence[Request]) -> tuple[Outputs, Outputs, Counted]:
    """Runs every request twice in little memory, and loses the group on the way. Returns the first outputs of each, the
    second, and what happened."""
    twice = [request for request in requests for _ in range(2)]
    traffic = Traffic(depth=2, num_blocks=12, losses=(4, 15), arrivals=range(0, 2 * len(twice), 2))
    outputs, counted = run_traffic(Executor(config, Group()), twice, traffic)
    return outputs[::2], outputs[1::2], counted


def on_shards(
    configs: Sequence[ShardConfig], requests: Sequence[Request], folder: Path, world_size: int
) -> list[list[Outputs]]:
    """Runs the requests of each model one by one, and together, on a group of shards."""
    return run_each(configs, [alone(requests), batched(requests, 3)], folder, world_size)


@contextmanager
def two_threads() -> Iterator[None]:
    """Lets the kernels use two threads while the block runs."""
    native.library.set_threads(2, None)
    try:
        yield
    finally:
        native.library.set_threads(1, None)
