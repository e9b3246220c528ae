"""A token for which the model computes NaN: the requests that have it get NaN, and the others the bits they always get.
"""


import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock.contract.row_result import RowResult
from penstock.contract.sampling import Sampling
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from tests.shard.ranks import make_config, run_program
from tests.shard.step_programs import Program, Request, alone, batched
from tests.tiny_models import make_tiny

NAN_TOKEN = 7
NEVER = {"bias_ids": np.array([NAN_TOKEN]), "bias_values": np.array([-100], np.float32)}
HEALTHY = [Request(list(range(start, start + 20)), 6, Sampling(do_sample=True, seed=start, **NEVER))
           for start in (20, 60, 100)]
POISONED = [Request([9, NAN_TOKEN, 8], 4, sampling, mask_seed, wants_prompt_logprobs)
            for sampling, mask_seed, wants_prompt_logprobs in (
                (Sampling(), None, False), (Sampling(), None, True), (Sampling(), 3, False),
                (Sampling(do_sample=True, seed=1), None, False), (Sampling(top_n=3), None, False),
                (Sampling(do_sample=True, seed=2, top_k=5, top_p=0.5, temperature=0.7), None, False),
                (Sampling(repetition_penalty=1.2), 4, False))]


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Executor:
    model = make_tiny(tmp_path_factory.mktemp("model") / "tiny")
    weights = load_file(model / "model.safetensors")
    weights["model.embed_tokens.weight"][NAN_TOKEN] = torch.nan
    save_file(weights, model / "model.safetensors")
    return Executor(make_config(model, "float32"), Group())


def results_of(executor: Executor, program: Program) -> list[list[RowResult]]:
    """Of each request, in order."""
    results: list[list[RowResult]] = [[] for _ in range(program.limits.max_slots)]
    executor.open(program.limits)
    for index, (step, owners) in enumerate(zip(program.steps, program.owners, strict=True)):
        masks = program.masks(index, executor.memory.bounds.vocab_size)
        rows = executor.execute(step, lambda masks=masks: masks).rows  # type: ignore[misc]
        for owner, row in zip(owners, rows, strict=True):
            results[owner].append(row)
    executor.close()
    return results


@pytest.mark.parametrize("seed", range(3))
def test_nan_stays_where_it_belongs(executor: Executor, seed: int) -> None:
    """In a memory so small that blocks with NaN are used again."""
    expected = run_program(executor, alone(HEALTHY))
    requests = [*POISONED, *HEALTHY]
    results = results_of(executor, batched(requests, seed, num_blocks=10, max_running=3))
    for poisoned in results[:len(POISONED)]:
        sampled = [row for row in poisoned if row.token_ids]
        assert all(np.isnan(row.logprobs).all() for row in sampled)
        assert all(0 <= token_id < executor.memory.bounds.vocab_size for row in sampled for token_id in row.token_ids)
    told = [row for row in results[1] if row.prompt_logprobs]
    assert np.isnan([logprob for row in told for logprob in row.prompt_logprobs][-1])
    for healthy, tokens in zip(results[len(POISONED):], expected, strict=False):
        assert [(row.token_ids, row.logprobs) for row in healthy if row.token_ids] == [
            ((token.token_id,), (token.logprob,)) for token in tokens]
