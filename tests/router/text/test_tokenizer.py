"""Loading, encoding in threads, places of tokens, truncation."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers.processors import TemplateProcessing

from penstock.contract.sampling import Sampling
from penstock.router.engine.request import Request
from penstock.router.engine.text_path import Piece, TextPath
from penstock.router.text.encoding import TokenizerError
from penstock.router.text.tokenizer import Tokenizer
from tests.router.text.tokenizers_for_tests import DEMO, demo_tokenizer


@pytest.fixture
def tokenizer() -> Iterator[Tokenizer]:
    tokenizer = Tokenizer.load(DEMO)
    yield tokenizer
    tokenizer.close()


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", b"\xff", b'{"version": "1.0"}'])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: ."):
        Tokenizer.load(path)


async def test_encode_and_decode(tokenizer: Tokenizer) -> None:
    text = "Hello wörld 😀<|im_end|>"
    ids = await tokenizer.encode(text)
    assert ids[-1] == 2
    assert tokenizer.decode(ids) == text
    assert tokenizer.is_special(2)
    assert not tokenizer.is_special(ids[0])
    assert tokenizer.special_id("<|im_end|>") == 2
    assert tokenizer.special_id("a") is None
    assert tokenizer.marks("a<|im_end|>\n") == tokenizer.marks("a<|im_end|>\n") == {"<|im_end|>": 2}


async def split(tokenizer: Tokenizer, text: str) -> list[dict[str, Any]]:
    return [token async for part in tokenizer.split(text) for token in json.loads(part)]


async def test_places_are_bytes(tokenizer: Tokenizer) -> None:
    assert await split(tokenizer, "é a") == [
        {"id": 130, "text": "é", "start": 0, "stop": 2}, {"id": 105, "text": "é", "start": 0, "stop": 2},
        {"id": 269, "text": " a", "start": 2, "stop": 4}]


async def test_truncation_keeps_what_every_text_gets() -> None:
    inner = tokenizers.Tokenizer.from_file(str(DEMO))
    inner.post_processor = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    tokenizer = Tokenizer(inner)
    ids = await tokenizer.encode(" a b c")
    assert len(ids) == 4
    assert await tokenizer.encode(" a b c", truncate=4) == ids
    assert await tokenizer.encode(" a b c", truncate=3) == (0, *ids[-2:])
    assert await tokenizer.encode(" a b c", truncate=1) == (0,)
    assert await tokenizer.encode(" a b c", add_special_tokens=False, truncate=2) == ids[-2:]
    ids = await tokenizer.encode(" a b c" * 1000)
    assert await tokenizer.encode(" a b c" * 1000, truncate=5) == (0, *ids[-4:])
    tokenizer.close()


async def test_the_beginning_of_a_text_has_so_many_tokens(tokenizer: Tokenizer) -> None:
    """A character whose tokens are not all among them is left out."""
    text = "Hello wörld 😀 and more"
    ids = await tokenizer.encode(text, add_special_tokens=False)
    for most in range(1, len(ids) + 2):
        beginning = await tokenizer.beginning(text, most)
        assert text.startswith(beginning)
        number = len(await tokenizer.encode(beginning, add_special_tokens=False))
        assert number == min(most, len(ids)) or text[len(beginning)] in " ö😀"
    assert await tokenizer.beginning(text, 100) == text
    long = "word " * 20_000
    assert await tokenizer.beginning(long, 30) == ("word " * 100)[:len(await tokenizer.beginning(long, 30))]
    assert await tokenizer.beginning(long, 10**6) == long


async def test_limits_of_the_file_do_not_count() -> None:
    inner = tokenizers.Tokenizer.from_file(str(DEMO))
    inner.enable_truncation(2)
    inner.enable_padding(length=64)
    tokenizer = Tokenizer(inner)
    assert len(await tokenizer.encode(" a b c d")) == 4
    tokenizer.close()


async def test_a_text_that_is_none(tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError):
        await tokenizer.encode("\ud800")


async def test_the_loop_runs_on_while_a_text_is_encoded(tokenizer: Tokenizer) -> None:
    encoding = asyncio.create_task(tokenizer.encode("the quick brown fox. " * 40_000))
    turns = 0
    while not encoding.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert len(await encoding) > 40_000
    assert turns > 10


def push_all(stop: tuple[str, ...], ids: tuple[int, ...]) -> tuple[list[Piece], str]:
    path = TextPath(demo_tokenizer(), Request((67,), Sampling(), 100, stop))
    pieces = []
    for token_id in ids:
        pieces.append(path.push(token_id))
        if pieces[-1].stop is not None:
            break
    return pieces, path.text


async def test_text_path(tokenizer: Tokenizer) -> None:
    ids = await tokenizer.encode("Paris<|im_end|> now")
    pieces, text = push_all((), ids)
    assert "".join(piece.text for piece in pieces) == "Paris<|im_end|> now"
    assert [piece.text for piece in pieces if piece.is_special] == ["<|im_end|>"]
    assert text == "Paris now"
    pieces, text = push_all(("ri", "nowhere"), ids)
    assert (text, pieces[-1].stop) == ("Pari", "ri")
    pieces, text = push_all(("im_",), ids)
    assert (text, pieces[-1]) == ("Paris", Piece("<|im_", is_special=True, stop="im_"))
