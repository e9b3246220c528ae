"""Makes the GGUF files beside this one with llama.cpp's converter and its llama-quantize.

Needs more than the tests do: sentencepiece, and llama.cpp's sources with llama-quantize in build/bin.
`PYTHONPATH=LLAMA_CPP/gguf-py:LLAMA_CPP python -m tests.gguf_files.make LLAMA_CPP TEXT`, where TEXT is a folder whose
*.txt and *.md files the vocabularies are made of.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.gguf_files import FOLDER, TYPES
from tests.tiny_models import make_tiny

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
SIZES = {"hidden": 64, "intermediate": 64, "heads": 8, "kv_heads": 8, "head_dim": 8, "layers": 1}
OF_SUPER_BLOCKS = {"hidden": 256, "intermediate": 256, "tied": True}


def sentence_piece(folder: Path, texts: list[str]) -> None:
    """transformers makes the merges, and the rest is as in the tokenizer.json of Llama 2."""
    import sentencepiece
    from transformers import LlamaTokenizerFast

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_prefix=str(folder / "tokenizer"), vocab_size=512, model_type="bpe",
        byte_fallback=True, character_coverage=0.999, normalization_rule_name="identity", add_dummy_prefix=True,
        remove_extra_whitespaces=False, unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    tokenizer = LlamaTokenizerFast.from_pretrained(str(folder)).backend_tokenizer
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = None  # type: ignore[assignment]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>",
                                                              "eos_token": "</s>", "add_bos_token": True}))


def byte_level(pattern: str, is_composed: bool, bos: str | None) -> Callable[[Path, list[str]], None]:
    def make(folder: Path, texts: list[str]) -> None:
        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] if bos is None else [bos, "<|eot_id|>"]
        tokenizer = Tokenizer(models.BPE(ignore_merges=bos is not None))
        if is_composed:
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
            vocab_size=512 - len(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        tokenizer.add_special_tokens(special)
        if bos is not None:
            tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))])
        tokenizer.save(str(folder / "tokenizer.json"))
        roles = {"eos_token": special[-1]} | ({"bos_token": bos} if bos else {})
        (folder / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE, **roles}))

    return make


def convert(llama_cpp: Path, model: Path, out: Path, pre: str) -> None:
    """Runs the converter, which knows tokenizers by what they make of a text, and none of these."""
    sys.path.insert(0, str(llama_cpp))
    import convert_hf_to_gguf
    from conversion import base

    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    sys.argv = ["convert_hf_to_gguf.py", str(model), "--outtype", "bf16", "--outfile", str(out)]
    convert_hf_to_gguf.main()


def make(llama_cpp: Path, texts: list[str], folder: Path) -> None:
    kinds: dict[str, tuple[Callable[[Path, list[str]], None], str, dict[str, Any]]] = {
        "llama": (sentence_piece, "default", {"family": "llama"}),
        "qwen2": (byte_level(QWEN2, True, None), "qwen2", {"family": "qwen2", "tied": True}),
        "llama3": (byte_level(LLAMA3, False, "<|begin_of_text|>"), "llama-bpe", {
            "family": "llama", "tied": True, "rope": {
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64}}),
    }
    for name, (tokenizer, pre, keys) in kinds.items():
        tokenized = folder / f"{name}-tokenizer"
        tokenized.mkdir()
        tokenizer(tokenized, texts)
        shutil.copy(tokenized / "tokenizer.json", FOLDER / f"{name}.json")
        for kind in TYPES if name == "llama" else ("Q8_0",):
            sizes = SIZES | (OF_SUPER_BLOCKS if "_K" in kind else {})
            model = make_tiny(folder / f"{name}-{kind}", vocab=512, dtype=torch.bfloat16, **sizes, **keys)
            shutil.copytree(tokenized, model, dirs_exist_ok=True)
            convert(llama_cpp, model, folder / "plain.gguf", pre)
            out = FOLDER / (f"{name}-{kind}.gguf" if name == "llama" else f"{name}.gguf")
            subprocess.run([llama_cpp / "build/bin/llama-quantize", folder / "plain.gguf", out, kind, "1"], check=True)


if __name__ == "__main__":
    texts = [line for path in sorted(Path(sys.argv[2]).rglob("*")) if path.suffix in (".txt", ".md")
             for line in path.read_text(encoding="utf-8").splitlines(keepends=True)]
    with tempfile.TemporaryDirectory() as made:
        make(Path(sys.argv[1]).resolve(), texts, Path(made))
