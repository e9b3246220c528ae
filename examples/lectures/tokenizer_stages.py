"""The four stages of a tokenizer, one after the other, as the demo model's has them.

    python examples/lectures/tokenizer_stages.py [TOKENIZER.JSON] [TEXT]

1. The normaliser changes characters (case, accents, Unicode's forms).
2. The pre-tokeniser cuts the text into parts that no token goes across.
3. The model makes tokens of each part: here by byte pair encoding (byte_pair_encoding.py).
4. The post-processor adds special tokens, such as one for the beginning.
"""

import sys
from pathlib import Path

from tokenizers import Tokenizer

DEMO = Path(__file__).parents[2] / "deploy/demo_model/checkpoint/tokenizer.json"
TEXT = "def walk(path): naïve"


def stages(tokenizer: Tokenizer, text: str) -> dict[str, list[str]]:
    """Returns what each stage makes of a text."""
    normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    parts = [normal]
    if tokenizer.pre_tokenizer:
        parts = [part for part, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)]
    tokens = [token for part in parts for token in tokenizer.model.tokenize(part)]
    ids = tokenizer.encode(text).ids
    return {"text": [text], "normalised": [normal], "parts": parts, "tokens": [token.value for token in tokens],
            "ids": [str(token.id) for token in tokens], "post-processed ids": [str(id) for id in ids],
            "decoded": [tokenizer.decode(ids)]}


def main(file: str = str(DEMO), text: str = TEXT) -> None:
    for name, values in stages(Tokenizer.from_file(file), text).items():
        print(f"{name:>18}: {' | '.join(values)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
