"""The executor on one rank: what a shard promises beyond the equalities of test_bits."""

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from penstock.contract.block_copy import BlockCopy
from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.contract.row_result import RowResult
from penstock.contract.sampling import Sampling
from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.facts import describe
from penstock.shard.execution.slots import OrderError
from penstock.shard.models.model import Hidden
from penstock.shard.startup.measure import measure_step_tokens
from penstock.system.memory_file import HEADER_BYTES
from tests.shard.ranks import Sampled, make_config, run_program
from tests.shard.step_programs import Program, Request, alone, initial, make_row, prompt_step
from tests.tiny_models import make_tiny

SEEDED = Sampling(do_sample=True, seed=21, temperature=1.1, top_p=0.9, repetition_penalty=1.3, share_penalty=0.2)
REQUEST = Request(np.random.default_rng(3).integers(3, 160, 40).tolist(), 12, SEEDED)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def executor(model: Path) -> Executor:
    return Executor(make_config(model), Group())


@pytest.fixture(scope="module")
def expected(executor: Executor) -> list[Sampled]:
    """REQUEST, undisturbed."""
    return run_program(executor, alone([REQUEST]))[0]


def run_rows(executor: Executor, rows: list[Row]) -> list[Sampled]:
    """Each row in a step of its own, after what ran before."""
    program = Program(alone([REQUEST]).limits, [Plan(i, (row,)) for i, row in enumerate(rows)], [[0]] * len(rows))
    return run_program(executor, program)[0]


def decode_rows(start: int, count: int, first_block: int) -> list[Row]:
    """Positions from `start` on; a block for each position that begins one."""
    return [
        make_row(0, position, from_last_sample=True,
                 new_blocks=[first_block + position // 16] if position % 16 == 0 else [])
        for position in range(start, start + count)]


def test_replayed_is_undisturbed(executor: Executor, expected: list[Sampled]) -> None:
    """Forgotten after five tokens, the sequence comes back with its prompt and output as the input."""
    tokens = [*REQUEST.prompt, *(sampled.token_id for sampled in expected[:5])]
    begin = make_row(0, 0, tokens, new_blocks=[9, 10, 11], initial_state=initial(len(REQUEST.prompt), SEEDED, tokens))
    assert run_rows(executor, [begin, *decode_rows(len(tokens), 6, 20)]) == expected[5:]


def test_cached_is_fresh(executor: Executor, expected: list[Sampled]) -> None:
    """A sequence that starts behind two blocks which another slot wrote."""
    prompt = REQUEST.prompt
    other = make_row(1, 0, [*prompt[:32], 5, 6], new_blocks=[7, 4, 30], is_sampled=False, initial_state=initial(34))
    begin = make_row(0, 32, prompt[32:], new_blocks=[7, 4, 2], initial_state=initial(len(prompt), SEEDED, prompt))
    program = Program(
        alone([REQUEST] * 2).limits,
        [Plan(0, (other,)), Plan(1, (begin,), (1,)),
         *(Plan(2 + i, (row,)) for i, row in enumerate(decode_rows(40, 11, 50)))],
        [[], *[[0]] * 12])
    assert run_program(executor, program)[0] == expected


def test_a_row_may_go_back_and_write_again(executor: Executor, expected: list[Sampled]) -> None:
    prompt = REQUEST.prompt
    wrong = make_row(0, 0, [*prompt[:30], 9, 9, 9], new_blocks=[1, 2, 3], is_sampled=False,
                     initial_state=initial(len(prompt), SEEDED, prompt))
    right = make_row(0, 30, prompt[30:])
    program = Program(alone([REQUEST]).limits, [Plan(0, (wrong,)), Plan(1, (right,))], [[], [0]])
    assert run_program(executor, program)[0] == expected[:1]


@pytest.mark.parametrize("kv_cache_dtype", [None, "int8"])
def test_a_fork_goes_on_as_its_sequence_would(model: Path, kv_cache_dtype: str | None) -> None:
    """From amid a block that the sequence has written a part of, and writes on in the same step: another way on."""
    executor = Executor(replace(make_config(model), kv_cache_dtype=kv_cache_dtype), Group())
    expected = run_program(executor, alone([REQUEST]))[0]
    ids, prompt = [sampled.token_id for sampled in expected], REQUEST.prompt
    wrong = (ids[4] + 1) % 160
    executor.open(alone([REQUEST] * 2).limits)
    first = make_row(0, 0, prompt, new_blocks=[8, 3, 5], initial_state=initial(len(prompt), SEEDED, prompt))
    executor.execute(Plan(0, (first, )))
    executor.execute(Plan(1, (make_row(0, 40, ids[:3], num_drafts=2),)))
    own = make_row(0, 43, [ids[3], wrong, ids[5]], num_drafts=2)
    fork = make_row(1, 43, ids[3:6], new_blocks=[8, 3, 6], num_drafts=2,
                    initial_state=initial(len(prompt), SEEDED, [*prompt, *ids[:4]]))
    both = executor.execute(Plan(2, (own, fork), (), (BlockCopy(5, 6),)))
    assert [row.token_ids for row in both.rows] == [tuple(ids[4:5]), tuple(ids[4:7])]
    rest = executor.execute(Plan(3, (make_row(1, 46, ids[6:11], new_blocks=[2], num_drafts=4),), (0,)))
    assert rest.rows[0].token_ids == tuple(ids[7:])
    logprobs = [*both.rows[1].logprobs, *rest.rows[0].logprobs]
    assert logprobs == [sampled.logprob for sampled in expected[4:]]


def test_a_step_may_sample_nothing(executor: Executor) -> None:
    executor.open(alone([REQUEST]).limits)
    row = make_row(0, 0, [5, 6], new_blocks=[1], is_sampled=False, initial_state=initial(4))
    result = executor.execute(Plan(0, (row,)))
    assert result.rows == ()
    assert result.forward_ns > 0


def prompt_result(executor: Executor, prompt: list[int], prompt_logprob_ids: list[int], **sampling: int) -> RowResult:
    """The result of a step that samples nothing."""
    blocks = range(-(-len(prompt) // 16))
    row = make_row(0, 0, prompt, new_blocks=blocks, is_sampled=False, prompt_logprob_ids=prompt_logprob_ids,
                   initial_state=initial(len(prompt) + 1, Sampling(**sampling)))
    executor.open(alone([REQUEST]).limits)
    (result,) = executor.execute(Plan(0, (row,))).rows
    return result


def test_prompt_logprobs_are_the_log_softmax_of_the_logits(executor: Executor) -> None:
    """They are the model's at each position; a row that wants them may sample nothing."""
    prompt = np.random.default_rng(8).integers(3, 160, 150).tolist()
    targets = [*prompt[1:], 77]
    result = prompt_result(executor, prompt, targets, top_n=2)
    assert (result.token_ids, result.logprobs, result.top_logprobs) == ((), (), ())
    for position in (0, 1, 62, 63, 64, 65, 127, 128, 149):
        executor.open(alone([REQUEST]).limits)
        row = make_row(0, 0, prompt[:position + 1], new_blocks=range(10), initial_state=initial(position + 1))
        logits = executor.forward(Plan(0, (row,))).logits
        assert logits is not None
        expected = torch.log_softmax(logits[0].double(), dim=0)
        assert result.prompt_logprobs[position] == pytest.approx(float(expected[targets[position]]), abs=1e-6)
        best = expected.topk(2)
        assert [token for token, _ in result.prompt_top_logprobs[position]] == best.indices.tolist()
        logprobs = [logprob for _, logprob in result.prompt_top_logprobs[position]]
        assert logprobs == pytest.approx(best.values.tolist(), abs=1e-6)
        order = logits[0].argsort(descending=True, stable=True).tolist()
        assert result.prompt_ranks[position] == order.index(targets[position]) + 1
    assert len(result.prompt_logprobs) == len(result.prompt_top_logprobs) == len(result.prompt_ranks) == 150
    part = prompt_result(executor, prompt, targets[:70])
    assert part.prompt_logprobs == result.prompt_logprobs[:70], "only the first inputs, if so asked"
    assert part.prompt_top_logprobs == ()


def test_prompt_logprobs_take_no_more_memory_for_longer_chunks(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def count(hidden: Hidden, rows: torch.Tensor, logits=executor.model.logits) -> object:  # type: ignore[no-untyped-def]
        sizes.append(len(rows))
        return logits(hidden, rows)
    monkeypatch.setattr(executor.model, "logits", count)
    prompt_result(executor, [5] * 200, [5] * 150)
    assert sizes == [0, 64, 64, 22]


def test_a_step_waits_for_masks_after_the_model(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only if a row of it says so; what it does not get it does without. The wait is nobody's work."""
    executor.open(alone([REQUEST]).limits)
    prompt = make_row(0, 0, [5, 6, 7], new_blocks=[1], initial_state=initial(3), late_mask=True)
    mask = np.zeros((1, 5), np.int32)
    mask[0, 2] = 1 << 9
    result = executor.execute(Plan(0, (prompt,)), lambda: {0: mask})
    assert result.rows[0].token_ids == (64 + 9,)
    assert result.rows[0].logprobs == (0.0,)

    ticks = itertools.count()
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(ticks))

    def wait() -> dict[int, np.ndarray]:  # type: ignore[type-arg]
        for _ in range(1000):
            next(ticks)
        return {}
    result = executor.execute(Plan(1, (make_row(0, 3, from_last_sample=True, late_mask=True),)), wait)
    assert result.rows[0].logprobs[0] < 0
    assert 2 <= result.forward_ns + result.sample_ns < 1000
    executor.execute(Plan(2, (make_row(0, 4, from_last_sample=True),)), pytest.fail)


def test_execute_is_forward_and_sample(executor: Executor, expected: list[Sampled]) -> None:
    executor.open(alone([REQUEST]).limits)
    for step, sampled in zip(alone([REQUEST]).steps, expected, strict=True):
        result = executor.execute(step)
        assert [(row.slot, row.token_ids, row.logprobs) for row in result.rows] == [
            (0, (sampled.token_id,), (sampled.logprob,))]
        assert result.step_id == step.step_id


def test_watermarks_are_as_strong_as_was_said(model: Path) -> None:
    program = alone([replace(REQUEST, sampling=Sampling(watermark=True))])
    none, weak, strong = (
        [sampled.token_id for sampled in run_program(
            Executor(replace(make_config(model), watermark_gamma=gamma, watermark_delta=delta), Group()), program)[0]]
        for gamma, delta in ((0.5, 0.0), (0.0, 9.0), (0.5, 9.0)))
    assert none == weak != strong


def test_open_empties_the_slots(executor: Executor) -> None:
    limits = alone([REQUEST]).limits
    executor.open(limits)
    executor.execute(prompt_step(0))
    executor.open(limits)
    with pytest.raises(OrderError, match="slot 0 has had no first row"):
        executor.execute(Plan(0, (make_row(0, 8, from_last_sample=True),)))
    executor.close()
    with pytest.raises(OrderError, match="a step came before stream_limits"):
        executor.execute(prompt_step(0))


def test_facts(executor: Executor, model: Path) -> None:
    shard = describe(executor, step_tokens=64)
    facts = shard.facts
    assert (facts.vocab_size, facts.context_length, facts.eos_token_ids) == (160, 256, frozenset({2}))
    assert (shard.rank, facts.world_size, shard.answers, facts.step_tokens) == (0, 1, True, 64)
    assert facts.numerics == f"{dispatch.path()}/float32/kv-float32/contract-1"
    assert facts.model_id == str(model)
    assert facts.num_blocks == (64 << 20) // (2 * 16 * 2 * 32 * 2 * 4)


@pytest.fixture
def memory_fd() -> Iterator[int]:
    fd = os.memfd_create("test")
    yield fd
    os.close(fd)


@pytest.mark.skipif(dispatch.kernel_set() == "gpu", reason="a GPU's memory ends with its process")
def test_kept_memory_is_of_no_use_to_a_model_that_computes_otherwise(tmp_path: Path, memory_fd: int) -> None:
    """The weights are the same, and all that the facts tell."""
    def change(**keys: object) -> None:
        path = tmp_path / "model/config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))

    def memory_id() -> str:
        return describe(Executor(config, Group()), 64).facts.memory_id

    config = replace(make_config(make_tiny(tmp_path / "model", is_old_config=True)), memory_fd=memory_fd)
    first = memory_id()
    assert memory_id() == first
    assert " at 0x" not in Executor(config, Group()).model.facts.identity, "addresses differ in the next process"
    change(rope_theta=5000.0)
    turned = memory_id()
    assert turned != first
    change(rms_norm_eps=1e-3)
    assert memory_id() not in (first, turned)


@pytest.mark.skipif(dispatch.kernel_set() == "gpu", reason="a GPU's memory ends with its process")
def test_memory_that_was_released_is_the_systems_and_the_next_one_gives_the_same_bits(
    model: Path, memory_fd: int, expected: list[Sampled]
) -> None:
    executor = Executor(replace(make_config(model), memory_fd=memory_fd), Group())
    first = describe(executor, 64).facts
    assert run_program(executor, alone([REQUEST]))[0] == expected
    executor.release()
    os.ftruncate(memory_fd, HEADER_BYTES)
    assert os.fstat(memory_fd).st_blocks * 512 <= HEADER_BYTES
    executor.occupy()
    again = describe(executor, 64).facts
    assert again.num_blocks == first.num_blocks
    assert again.memory_id != first.memory_id
    assert run_program(executor, alone([REQUEST]))[0] == expected


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dtype_is_a_choice(model: Path, dtype: str) -> None:
    executor = Executor(replace(make_config(model, dtype), model_id="a-name", block_size=8), Group())
    facts = describe(executor, 16).facts
    assert (facts.dtype, facts.kv_dtype, facts.block_size, facts.model_id) == (dtype, dtype, 8, "a-name")
    assert facts.numerics == f"{dispatch.path()}/{dtype}/kv-{dtype}/contract-1"
    executor.open(alone([REQUEST]).limits)
    assert executor.execute(prompt_step(0)).rows[0].logprobs[0] <= 0


@pytest.mark.parametrize("kv_memory", [64 << 20, 16 * 16384, 25 * 16384])
def test_step_tokens_are_measured(model: Path, kv_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the KV memory holds one context only, or one and a half."""
    executor = Executor(replace(make_config(model), kv_memory=kv_memory), Group())
    sizes: list[int] = []

    def count(step: Plan, execute=executor.execute) -> object:  # type: ignore[no-untyped-def]
        sizes.append(sum(row.num_inputs for row in step.rows))
        return execute(step)
    monkeypatch.setattr(executor, "execute", count)
    step_tokens = measure_step_tokens(executor, Group())
    assert step_tokens % 16 == 0
    assert 16 <= step_tokens <= 4096
    assert sizes[0] == 16
    assert sizes[1:] == [16 << i for i in range(len(sizes) - 1)]
    assert max(sizes) <= executor.memory.bounds.num_blocks * 16


@pytest.mark.parametrize("context", [10, 250])
def test_step_tokens_of_a_context_without_whole_blocks(tmp_path: Path, context: int) -> None:
    """In a KV memory of one context there is no place for a second prompt, though the last block has room."""
    model = make_tiny(tmp_path / "model", context=context)
    executor = Executor(replace(make_config(model), kv_memory=-(-context // 16) * 16384), Group())
    assert executor.memory.bounds.num_blocks == -(-context // 16)
    assert measure_step_tokens(executor, Group()) >= 16


def test_step_tokens_scale_with_the_time(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that runs 1 token in 2 ms runs 125 tokens in 250 ms, of which 112 are whole sixteens."""
    def slow(step: Plan, execute=executor.execute) -> object:  # type: ignore[no-untyped-def]
        count = sum(row.num_inputs for row in step.rows)
        return replace(execute(step), forward_ns=count * 2_000_000, sample_ns=0)
    monkeypatch.setattr(executor, "execute", slow)
    assert measure_step_tokens(executor, Group()) == 112
