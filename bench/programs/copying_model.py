"""A model that speaks a known text: after each word comes the next word of one long circle.

So a prompt that has a part of the circle is a file that the answer repeats, and a changed word in it an edit. Its
layers are a random model's, of any shape, and take a random model's time; only what they add is small beside the
word's own embedding, from which the head reads the next word.
"""

import json
import random
from pathlib import Path

from penstock.bench.load.prompts import load_tokenizer, plain_words
from penstock.bench.programs.model import SHAPES, write_model

WORDS_FILE = "circle.json"


def write_copying_model(folder: Path, shape: str, seed: int = 0, share_wrong: float = 0.0) -> None:
    """Writes the model, and its words in their order beside it; models of one vocabulary and one seed have the same
    circle, of which this one knows a share of the words wrongly. Raises KeyError for an unknown shape."""
    import torch  # takes seconds to import
    from safetensors.torch import load_file, save_file

    write_model(folder, shape, seed)
    tokenizer = load_tokenizer(str(folder))
    words = plain_words(tokenizer)
    draw = random.Random(seed)
    draw.shuffle(words)
    ids = [tokenizer.token_to_id(tokenizer.encode(word, add_special_tokens=False).tokens[0]) for word in words]
    weights = load_file(folder / "model.safetensors")
    embedding = torch.randn(SHAPES[shape]["vocab_size"], SHAPES[shape]["hidden_size"],
                            generator=torch.Generator().manual_seed(seed))
    head = 0.1 * torch.randn(embedding.shape, generator=torch.Generator().manual_seed(seed + 1))
    known = [draw.choice(ids) if draw.random() < share_wrong else id for id in ids]
    head[torch.tensor(ids[1:] + ids[:1])] = embedding[torch.tensor(known)]
    weights["model.embed_tokens.weight"] = embedding.bfloat16()
    weights["lm_head.weight"] = head.bfloat16()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}, indent=2))
    (folder / WORDS_FILE).write_text(json.dumps(words))


def circle(folder: Path) -> list[str]:
    """Returns the words of a model in the order in which it speaks them."""
    words: list[str] = json.loads((folder / WORDS_FILE).read_text())
    return words
