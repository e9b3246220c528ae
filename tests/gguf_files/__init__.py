"""GGUF files of tiny models, and what they were made of; make.py makes them with llama.cpp's own programs."""

from pathlib import Path

FOLDER = Path(__file__).parent
TYPES = ("BF16", "F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K_M", "Q5_K_M")
"""The files llama-TYPE.gguf; that of Q4_K_M and Q5_K_M has Q6_K, too, and Q5_0 or Q5_1 where 256 do not divide rows."""
TOKENIZERS = ("llama", "qwen2", "llama3")
"""NAME.json is the tokenizer.json that the file of this name was made of."""


def file_of(name: str) -> Path:
    return FOLDER / {"llama": "llama-Q8_0.gguf"}.get(name, f"{name}.gguf")
