"""The bit contract of test_bits.py, for the formats of quantised weights."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from penstock.checkpoints.gguf.folder import checkpoint_of
from penstock.contract.sampling import Sampling
from penstock.shard.config import ShardConfig
from tests import gguf_files
from tests.shard.ranks import Outputs, make_config, run
from tests.shard.step_programs import Request, alone, batched
from tests.shard.weights.library_files import FOLDER, NAMES

VOCAB = 64
OFTEN = ("awq", "int-quantized", "nf4")
GGUF = ("llama-Q4_0.gguf", "llama-Q4_K_M.gguf")
CHUNKS = (1, 3, 16, 17)


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    rng = np.random.default_rng(11)
    samplings = [Sampling(), Sampling(do_sample=True, seed=2, temperature=0.8, top_p=0.9)]
    return [Request(rng.integers(3, VOCAB, length).tolist(), int(rng.integers(2, 8)), samplings[index % 2])
            for index, length in enumerate((70, 1, 16, 33))]


@pytest.fixture(scope="module", params=[
    pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in (*NAMES, *(
        f"{name} with its activations as they are" for name in (*OFTEN[:2], *GGUF)), *GGUF)])
def config(request: pytest.FixtureRequest) -> Iterator[ShardConfig]:
    name, _, how = request.param.partition(" ")
    with checkpoint_of(gguf_files.FOLDER / name) if name in GGUF else nullcontext(FOLDER / name) as folder:
        yield replace(make_config(folder, "bfloat16"), activations="bf16" if how else None)


@pytest.fixture(scope="module")
def expected(config: ShardConfig, requests: list[Request], tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """Every request by itself, its prompt in one step."""
    (outputs,) = run(config, [alone(requests)], tmp_path_factory.mktemp("alone"))
    assert [len(tokens) for tokens in outputs] == [request.num_tokens for request in requests]
    return outputs


def test_batched_is_alone(config: ShardConfig, requests: list[Request], expected: Outputs, tmp_path: Path) -> None:
    assert run(config, [batched(requests, 1)], tmp_path) == [expected]


def test_chunked_is_whole(config: ShardConfig, requests: list[Request], expected: Outputs, tmp_path: Path) -> None:
    programs = [alone(requests[:1], chunk=chunk) for chunk in CHUNKS]
    assert run(config, programs, tmp_path) == [expected[:1]] * len(CHUNKS)
