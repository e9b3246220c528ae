"""A model whose tokenizer is vocab.json and merges.txt answers as with tokenizer.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.tokenizers.texts import DEMO, MERGES, write
from tests.e2e.server import Server, serve
from tests.e2e.test_gguf import post
from tests.paths import DEMO_MODEL

BODY: dict[str, Any] = {"inputs": "def open(path):\n    ", "parameters": {"max_new_tokens": 48, "details": True}}
GRAMMAR = {"type": "json", "value": {"properties": {"path": {"type": "string"}}, "required": ["path"]}}


@pytest.mark.slow
async def test_answers_are_those_with_tokenizer_json(tmp_path: Path, server: Server) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for path in DEMO_MODEL.iterdir():
        if path.name not in ("tokenizer.json", "tokenizer_config.json"):
            (folder / path.name).symlink_to(path)
    config = json.loads((DEMO_MODEL / "tokenizer_config.json").read_text())
    special = ["<|im_start|>", "<|im_end|>"]
    write(folder, vocab__json=DEMO["vocab"], merges__txt="\n".join(MERGES), tokenizer_config__json={
        **config, "tokenizer_class": "GPT2Tokenizer", "additional_special_tokens": special})
    bodies = [BODY, {**BODY, "parameters": BODY["parameters"] | {"grammar": GRAMMAR}}]
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    with serve(tmp_path, model=folder, environment=cache) as converted:
        answers = [post(converted.url, body) for body in bodies]
        log = converted.log.read_text()
    assert answers == [post(server.url, body) for body in bodies]
    assert f"Made {tmp_path}/cache/penstock/tokenizers/" in log
    assert "/tokenizer.json of vocab.json in " in log
