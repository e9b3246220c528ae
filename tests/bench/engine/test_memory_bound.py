import pytest

from penstock.bench.engine.memory_bound import read_bytes
from tests.tiny_models import make_tiny

HIDDEN, HEADS, VOCAB = 64, 4 * 32, 160
ATTENTION = HIDDEN * (HEADS + 2 * 64) + HEADS * HIDDEN
EXPERT = 3 * HIDDEN * 40


@pytest.mark.parametrize("tied", [False, True])
def test_a_token_reads_its_experts_and_one_of_embedding_and_head(tmp_path, tied):
    model = make_tiny(tmp_path, "qwen3_moe", layers=3, tied=tied, num_experts=8, num_experts_per_tok=2,
                      moe_intermediate_size=40, mlp_only_layers=[0])
    norms = 3 * 2 * (HIDDEN + 32) + HIDDEN
    plain, sparse = 3 * HIDDEN * 96, 2 * EXPERT + 8 * HIDDEN
    assert read_bytes(model) == 4 * (3 * ATTENTION + norms + plain + 2 * sparse + VOCAB * HIDDEN)


def test_all_of_a_gguf_file_counts(tmp_path):
    (tmp_path / "model.gguf").write_bytes(bytes(1000))
    assert read_bytes(tmp_path / "model.gguf") == 1000
