"""A GGUF file is served by its path."""

import json
import shutil
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from penstock.system.leftovers import CHECKPOINT_FOLDER
from tests.e2e.server import serve
from tests.e2e.test_launcher_death import kill, until_gone
from tests.gguf_files import FOLDER

FILE = FOLDER / "llama-Q4_K_M.gguf"
BODY = {"inputs": "the router", "parameters": {"max_new_tokens": 24, "details": True}}


def post(url: str, body: dict) -> dict:
    request = Request(f"{url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request) as response:
        return json.load(response)


@pytest.mark.slow
def test_gguf_file_is_served_with_equal_bits_on_any_number_of_shards(tmp_path: Path) -> None:
    answers = []
    for num_shard in (1, 2):
        with serve(tmp_path, "--num-shard", str(num_shard), model=FILE) as server:
            with urlopen(f"{server.url}/info") as response:
                info = json.load(response)
            assert info["model_id"] == str(FILE)
            assert "/gguf/activations-int8/" in info["numerics"]
            answers.append(post(server.url, BODY))
    tokens = answers[0]["details"]["tokens"]
    assert len(tokens) == 24
    assert all(token["logprob"] <= 0 for token in tokens)
    assert answers[0] == answers[1]


@pytest.mark.slow
async def test_what_is_made_of_a_gguf_file_is_made_again_and_outlives_nobody(tmp_path: Path) -> None:
    with serve(tmp_path, "--num-shard", "2", model=FILE) as server:
        before = post(server.url, BODY)
        [made] = (tmp_path / "tmp").glob(f"*/{CHECKPOINT_FOLDER}")
        shutil.rmtree(made)
        server.shards()[1].kill()
        assert post(server.url, BODY) == before
        assert made.exists()
        processes = kill(server)
        await until_gone(processes, tmp_path / "tmp")


@pytest.mark.slow
def test_damaged_file_ends_in_a_sentence(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(FILE.read_bytes()[:5000])
    with pytest.raises(RuntimeError, match=r"damaged\.gguf: .* the file is cut short or damaged"), serve(
            tmp_path, model=damaged):
        pass
