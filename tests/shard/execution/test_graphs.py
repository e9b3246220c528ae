"""Steps that are padded, copied into fixed places and replayed: the bits of those that are not."""

import itertools
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from penstock.contract.plan import Plan
from penstock.contract.row import Row
from penstock.kernels import dispatch, native
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.shard.communication.distributed import Group, connect
from penstock.shard.config import ShardConfig
from penstock.shard.execution.batch import Padding
from penstock.shard.execution.captures import capture
from penstock.shard.execution.executor import Executor, Outputs
from penstock.shard.execution.graphs import StepGraphs
from penstock.shard.models.model import Hidden
from tests import kernel_sets
from tests.family_models import make_family
from tests.paths import ROOT
from tests.shard.ranks import make_config, run_program
from tests.shard.scheduler_with_executor import Traffic, run_traffic
from tests.shard.step_programs import Request, alone, batched, initial, make_row
from tests.shard.test_bits import conversations
from tests.tiny_models import make_tiny

SIZES = (1, 2, 4, 7)
MIXED = (16, 32, 64, 128)
MAX_ROWS = 9
MAIN = "import sys; from tests.shard.execution.test_graphs import run_rank; run_rank(sys.argv[1], int(sys.argv[2]))"
RNG = np.random.default_rng(5)
PROMPTS = [RNG.integers(3, 160, int(length)).tolist() for length in (1, 3, 15, 16, 17, 90, 40, 33, 2)]
REQUESTS = [Request(prompt, 14 + 4 * index, wants_prompt_logprobs=index == 5) for index, prompt in enumerate(PROMPTS)]
PROGRAM = batched(REQUESTS, seed=8)
"""Rows of very different lengths, of which some end early: tables become wide and narrow again."""


class Compared(StepGraphs):
    """Runs every step of an executor that it replays a second time, without padding, and compares the bits."""

    def __init__(self, executor: Executor, sizes: tuple[int, ...] = SIZES, mixed: tuple[int, ...] = MIXED) -> None:
        super().__init__(executor.model, executor.memory.caches, executor.memory.bounds, sizes, mixed, MAX_ROWS)
        self.capture()
        self.decoded: list[tuple[int, int]] = []
        self.mixed: list[tuple[int, int]] = []
        self._size = 0, 0
        self.num_verified = 0
        executor.memory.graphs = self

    def padding_of(self, rows: tuple[Row, ...]) -> Padding | None:  # type: ignore[override]
        self._size = sum(row.num_inputs for row in rows), len(rows)
        self.num_verified += any(row.num_guesses for row in rows)
        return super().padding_of(rows)

    def decode(
        self, input_ids: Tensor, metadata: AttentionMetadata, padding: Padding, num_rows: int
    ) -> Tensor | None:
        """`decoded` has the rows and the width of the tables."""
        replayed = super().decode(input_ids, metadata, padding, num_rows)
        logits = self._model.logits(self._plain(input_ids, metadata), torch.arange(num_rows))
        assert (replayed is None) == (logits is None)
        if logits is not None and replayed is not None:
            assert bits(replayed) == bits(logits)
        self.decoded.append((num_rows, metadata.tables.shape[1]))
        return replayed

    def forward(self, input_ids: Tensor, metadata: AttentionMetadata, padding: Padding) -> Hidden:
        """`mixed` has the tokens and what they were padded to."""
        replayed, num_tokens = super().forward(input_ids, metadata, padding), self._size[0]
        plain = self._plain(input_ids, metadata)
        assert len(replayed.x) == len(replayed.delta) == padding.num_tokens
        assert bits(replayed.x[:num_tokens]) == bits(plain.x)
        assert bits(replayed.delta[:num_tokens]) == bits(plain.delta)
        self.mixed.append((num_tokens, padding.num_tokens))
        return replayed

    def _plain(self, input_ids: Tensor, padded: AttentionMetadata) -> Hidden:
        num_tokens, num_rows = self._size
        counts = padded.counts[:num_rows]
        metadata = AttentionMetadata(
            padded.positions[:num_tokens], padded.slot_mapping[:num_tokens], padded.tables[:num_rows],
            padded.starts[:num_rows], counts, is_decode=bool((counts == 1).all()))
        return self._model.forward(input_ids[:num_tokens], metadata, self._caches)


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("model") / "tiny")


def run_compared(config: ShardConfig, group: Group) -> Compared:
    executor = Executor(config, group)
    compared = Compared(executor)
    run_program(executor, PROGRAM)
    return compared


def check_seen(decoded: list[tuple[int, int]], mixed: list[tuple[int, int]]) -> None:
    """Each number of rows was there, and the tables' widths went up and down. Chunks were padded to each size."""
    assert {rows for rows, _ in decoded} == set(range(1, SIZES[-1] + 1))
    widths = [width for _, width in decoded]
    assert min(widths) < max(widths)
    assert any(before > after for before, after in itertools.pairwise(widths))
    assert any(before < after for before, after in itertools.pairwise(widths))
    assert {size for _, size in mixed} == {*MIXED}
    assert any(number < size for number, size in mixed)


@pytest.mark.parametrize(("dtype", "cache"), [("float32", None), ("bfloat16", None), ("bfloat16", "int8")])
def test_replayed_is_eager(model: Path, dtype: str, cache: str | None) -> None:
    compared = run_compared(make_config(model, dtype, cache), Group())
    check_seen(compared.decoded, compared.mixed)


def test_a_mixture_of_experts(tmp_path: Path) -> None:
    """What pads a step goes to experts, too."""
    compared = run_compared(make_config(make_family(tmp_path, "qwen3_moe")), Group())
    check_seen(compared.decoded, compared.mixed)


def test_answers_are_those_without_graphs(model: Path) -> None:
    """Tokens, logprobs and prompt logprobs; and of larger steps, which are not captured."""
    executor = Executor(make_config(model), Group())
    expected = run_program(executor, PROGRAM)
    compared = Compared(executor, mixed=(16, 32))
    assert run_program(executor, PROGRAM) == expected
    assert 0 < len(compared.mixed) + len(compared.decoded) < len(PROGRAM.steps)


def test_guesses_are_made_and_verified(model: Path, tmp_path: Path) -> None:
    """A draft model's, which is captured, too: rows have several tokens, with a token sampled after each. What it
    proposes has no say in the answers, and is the same."""
    draft = make_tiny(tmp_path / "draft", layers=1, seed=5)
    requests = conversations(160)
    config = replace(make_config(model), draft_model=draft, max_step_rows=MAX_ROWS)
    plain, captured = Executor(config, Group()), Executor(config, Group())
    traffic = Traffic(depth=2, proposals=3)
    answers = run_program(plain, alone(requests))
    expected = run_traffic(plain, requests, traffic, answers)
    capture(captured)
    compared = Compared(captured, mixed=(16, 32, 64))
    assert captured.drafter.graphs is not None
    with mock.patch.object(captured.drafter, "_model") as uncaptured:
        uncaptured.forward.side_effect = AssertionError("a step of the draft model is not captured")
        uncaptured.logits = captured.drafter.graphs._model.logits
        assert run_traffic(captured, requests, traffic, answers) == expected
    assert expected[0] == answers
    assert 0 < expected[1].accepted < expected[1].drafted
    assert compared.num_verified > 5


def test_states_are_those_of_steps_that_are_not_replayed(tmp_path: Path) -> None:
    executor = Executor(make_config(make_family(tmp_path, "qwen3_5")), Group())
    expected = run_program(executor, PROGRAM)
    graphs = executor.memory.graphs = StepGraphs(
        executor.model, executor.memory.caches, executor.memory.bounds, SIZES, MIXED, MAX_ROWS)
    graphs.capture()
    with (mock.patch.object(graphs, "decode", wraps=graphs.decode) as decode,
          mock.patch.object(graphs, "forward", wraps=graphs.forward) as forward):
        assert run_program(executor, PROGRAM) == expected
    assert decode.call_count > 0
    assert forward.call_count > 5


@pytest.mark.every_case
@pytest.mark.slow
@pytest.mark.parametrize("name", kernel_sets.GPU_SETS)
def test_on_the_gpus_kernels(model: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose bits depend on no padding where the contract holds."""
    kernel_sets.use(monkeypatch, name, is_real=True)
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", True)
    executor = Executor(make_config(model, "bfloat16"), Group())
    compared = Compared(executor, (4,), (16, 32))
    run_program(executor, batched([Request(prompt[:20], 2) for prompt in PROMPTS[3:7]], seed=2))
    assert {size for _, size in compared.mixed} == {16, 32}
    assert compared.decoded


@pytest.mark.slow
def test_on_two_ranks(model: Path, tmp_path: Path) -> None:
    config = replace(make_config(model), world_size=2, rendezvous=f"file://{tmp_path / 'store'}")
    job = tmp_path / "job"
    job.write_bytes(pickle.dumps(config))
    ranks = [subprocess.Popen([sys.executable, "-c", MAIN, str(job), str(rank)], cwd=ROOT) for rank in range(2)]
    try:
        assert [rank.wait(120) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    seen = [pickle.loads((tmp_path / f"seen-{rank}").read_bytes()) for rank in range(2)]
    assert seen[0] == seen[1]
    check_seen(*seen[0])


def run_rank(path: str, rank: int) -> None:
    """One rank of `test_on_two_ranks`, in a process of its own."""
    torch.set_num_threads(1)
    config = replace(pickle.loads(Path(path).read_bytes()), rank=rank)
    group = connect(config.rendezvous, rank, 2)
    compared = run_compared(config, group)
    Path(path).with_name(f"seen-{rank}").write_bytes(pickle.dumps((compared.decoded, compared.mixed)))
    group.close()


def test_which_steps_are_captured(model: Path) -> None:
    """A decode step has one sampled token in each row, without prompt logprobs, and no more rows than the largest
    size. Others have a row to spare for what pads them."""
    executor = Executor(make_config(model), Group())
    graphs = StepGraphs(executor.model, executor.memory.caches, executor.memory.bounds, SIZES, (16, 32), max_rows=10)

    def size_of(*rows: Row, of: StepGraphs = graphs) -> tuple[bool, int, int] | None:
        padding = of.padding_of(rows)
        return None if padding is None else (padding.is_decode, padding.num_tokens, padding.num_rows)
    decode = make_row(0, 5, from_last_sample=True)
    assert [size_of(*[decode] * count) for count in (1, 2, 3, 7)] == [(True, size, size) for size in (1, 2, 4, 7)]
    assert [size_of(*[decode] * count) for count in (8, 10, 11, 12)] == [(False, 16, 11)] * 2 + [None] * 2
    prompt = make_row(1, 0, range(5, 19), initial_state=initial(2))
    assert size_of(prompt) == size_of(prompt, decode) == size_of(prompt, decode, decode) == (False, 16, 11)
    assert size_of(prompt, decode, decode, decode) == size_of(prompt, prompt, *[decode] * 4) == (False, 32, 11)
    assert size_of(prompt, prompt, *[decode] * 5) is None
    for other in (make_row(1, 5, from_last_sample=True, is_sampled=False),
                  make_row(1, 5, from_last_sample=True, prompt_logprob_ids=[3])):
        assert size_of(decode, other) == (False, 16, 11)
    assert size_of(decode, of=StepGraphs(executor.model, executor.memory.caches, executor.memory.bounds, ())) is None


def test_what_the_settings_capture(model: Path) -> None:
    """No step of more tokens than a sequence may have, which here are 256, but of more rows."""
    executor = Executor(make_config(model), Group())

    def captured(config: ShardConfig) -> list[tuple[int, int]]:
        graphs = StepGraphs.of(executor.model, executor.memory.caches, executor.memory.bounds, config)
        return [(padding.num_tokens, padding.num_rows) for padding in graphs.paddings]
    config = replace(make_config(model), max_step_rows=40, cuda_graphs=(2, 4))
    assert captured(config) == [(2, 2), (4, 4), (16, 16), (32, 32), (64, 41), (128, 41), (192, 41), (256, 41)]
    many = StepGraphs(executor.model, executor.memory.caches, executor.memory.bounds, (300,), (16,), max_rows=300)
    many.run_largest()
    assert captured(replace(config, cuda_graphs=(0,))) == []
    executor.model.is_capturable = False
    assert captured(config) == []


class Host(TorchDispatchMode):
    """Counts what the host is to launch in the block: torch's ops that compute or copy, and compiled kernels, which are
    launches of their own on a GPU. A replay is one, whatever the device does then."""

    def __init__(self, graphs: StepGraphs) -> None:
        super().__init__()
        self.num_replays, self.launches = 0, list[str]()
        for captured in (*graphs._decode.values(), *graphs._mixed.values()):
            captured.replay = partial(self._replay, captured.replay)  # type: ignore[method-assign]

    def _replay(self, run: Callable[[], object]) -> object:
        before = len(self.launches)
        result = run()
        del self.launches[before:]
        self.num_replays += 1
        return result

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.launches += [str(func)] * (not func.is_view and "empty" not in str(func))
        return func(*args, **(kwargs or {}))

    def forward(self, executor: Executor, step: Plan) -> Outputs:
        self.num_replays, self.launches = 0, []
        with self, mock.patch.object(native, "library", Library(native.library, self)):
            return Executor.forward(executor, step)


class Library:
    """The compiled library, whose calls are counted."""

    def __init__(self, library: object, host: Host) -> None:
        self._library = library
        self._host = host

    def __getattr__(self, name: str) -> object:
        self._host.launches.append(name)
        return getattr(self._library, name)


def host_calls(model: Path) -> list[tuple[Plan, int, list[str]]]:
    """Of each step of a program the replays and what is launched beside them."""
    executor = Executor(make_config(model), Group())
    memory = executor.memory
    memory.graphs = StepGraphs(executor.model, memory.caches, memory.bounds, SIZES, MIXED[:2], MAX_ROWS)
    memory.graphs.capture()
    executor.open(PROGRAM.limits)
    host, calls = Host(memory.graphs), []
    for step in PROGRAM.steps:
        with mock.patch.object(executor, "forward", partial(host.forward, executor)):
            executor.execute(step)
        calls.append((step, host.num_replays, host.launches))
    return calls


def test_the_host_makes_few_calls_however_many_layers(tmp_path: Path) -> None:
    """A captured step is one replay. Before it ids are made of what was sampled, and six inputs are copied; behind it
    the logits are computed, unless the step is a decode step, and prompt logprobs and ranks. Other steps need more for
    more layers."""
    shallow, deep = (host_calls(make_tiny(tmp_path / str(layers), layers=layers)) for layers in (2, 5))
    for (step, num_replays, launches), (_, _, more) in zip(shallow, deep, strict=True):
        assert num_replays == (sum(row.num_inputs for row in step.rows) <= MIXED[1])
        if num_replays:
            assert launches == more
            assert len(launches) <= 14 + 9 * any(len(row.prompt_logprob_ids) for row in step.rows)
    assert min(len(launches) for _, _, launches in shallow) == 6
    assert any(not num_replays for _, num_replays, _ in shallow)


def test_capturing_changes_no_block(model: Path) -> None:
    """But the one that is nobody's."""
    executor = Executor(make_config(model), Group())
    run_program(executor, alone([Request([5, 6, 7], 4)]))
    before = [cache.data[:-1].clone() for cache in executor.memory.caches]
    graphs = StepGraphs(executor.model, executor.memory.caches, executor.memory.bounds, SIZES, MIXED, MAX_ROWS)
    hidden, vocabulary = 64, executor.memory.bounds.vocab_size
    assert graphs.run_largest() == 4 * (sum(SIZES) * vocabulary + 2 * sum(MIXED) * hidden)
    graphs.capture()
    assert all(torch.equal(cache.data[:-1], data) for cache, data in zip(executor.memory.caches, before, strict=True))
    assert not any((cache.data[-1] == 0xFF).all() for cache in executor.memory.caches)
