"""The demo model's tokenizer (byte level), and a small one with byte fallback as sentencepiece models have."""

from functools import cache

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers

from penstock.router.text.tokenizer import Tokenizer
from tests.paths import DEMO_MODEL

DEMO = DEMO_MODEL / "tokenizer.json"
FIRST_BYTE = 3
"""Id of the byte 0 in the byte fallback tokenizer; the others follow."""


@cache
def demo_tokenizer() -> Tokenizer:
    return Tokenizer.load(DEMO)


@cache
def byte_fallback_tokenizer() -> Tokenizer:
    """Words a to e with and without a leading space, single letters, and all 256 bytes."""
    words = ["▁", *"abcdeé", *(f"▁{letter}" for letter in "abcde")]
    vocabulary = {token: token_id for token_id, token in enumerate(
        ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words])}
    model = models.BPE(vocabulary, [("▁", letter) for letter in "abcde"], unk_token="<unk>", byte_fallback=True)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in ("<s>", "</s>")])
    return Tokenizer(tokenizer)
