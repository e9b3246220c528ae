"""`python -m penstock.bench.programs.model OUT` writes a random checkpoint of a given shape in bfloat16.

Speed does not depend on what the weights are. The tokenizer is the demo model's, with unused tokens up to the shape's
vocabulary, so that every id can be turned into text.
"""

from pathlib import Path
from typing import Any

import click

from penstock.bench.programs.root import BUILD, DEMO_MODEL

DEFAULT_MODEL = BUILD / "model-360m"
CONTEXT = 8192
SHAPES: dict[str, dict[str, Any]] = {
    # SmolLM2-360M's
    "360m": {"vocab_size": 49152, "hidden_size": 960, "num_hidden_layers": 32, "num_attention_heads": 15,
             "num_key_value_heads": 5, "intermediate_size": 2560, "rope_theta": 1e5},
    # Llama-3.2-1B's
    "1b": {"vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
           "num_key_value_heads": 8, "intermediate_size": 8192, "rope_theta": 5e5},
    # Four layers of Llama-3-8B's, and a smaller vocabulary
    "8b-4-layers": {"vocab_size": 32768, "hidden_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 32,
                    "num_key_value_heads": 8, "intermediate_size": 14336, "rope_theta": 5e5},
    "demo": {"vocab_size": 8192, "hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 8,
             "num_key_value_heads": 4, "intermediate_size": 704, "rope_theta": 1e4},
    # A draft model for 360m: a demo's layers, the vocabulary of the other
    "360m-draft": {"vocab_size": 49152, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
                   "num_key_value_heads": 4, "intermediate_size": 704, "rope_theta": 1e4},
    # A mixture of experts of 1.0 billion parameters, of which a token has 0.32
    "qwen3-moe-1b": {"model_type": "qwen3_moe", "vocab_size": 32768, "hidden_size": 1024, "num_hidden_layers": 24,
                     "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "num_experts": 32,
                     "num_experts_per_tok": 8, "norm_topk_prob": True, "moe_intermediate_size": 384,
                     "intermediate_size": 3072, "rope_theta": 1e6},
}
"""By name, the keys of config.json; the family is Llama where there is no other."""


def write_model(folder: Path, shape: str, seed: int = 0) -> int:
    """Writes a model, and returns the number of its parameters. Raises KeyError for a shape that is not in SHAPES."""
    if not DEMO_MODEL.is_dir():
        raise click.ClickException("a random model is made in a checkout of Penstock only: name a model instead")
    import torch  # these two take seconds to import
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    sizes = dict(SHAPES[shape])
    rotation = {"rope_type": "default", "rope_theta": sizes.pop("rope_theta")}
    tokenizer = AutoTokenizer.from_pretrained(DEMO_MODEL)
    tokenizer.add_tokens([f"<|unused_{number}|>" for number in range(len(tokenizer), sizes["vocab_size"])])
    torch.manual_seed(seed)
    any_model: Any = AutoModelForCausalLM
    config = AutoConfig.for_model(
        sizes.pop("model_type", "llama"), **sizes, rope_parameters=rotation, max_position_embeddings=CONTEXT,
        tie_word_embeddings=True, bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id)
    model = any_model.from_config(config)
    model.to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def existing_model(folder: Path | None) -> Path:
    """Returns `folder`; without one, a model of SmolLM2-360M's shape, which is made the first time."""
    if folder is None and not (DEFAULT_MODEL / "tokenizer.json").exists():
        print(f"writing a model into {DEFAULT_MODEL}")
        write_model(DEFAULT_MODEL, "360m")
    return (folder or DEFAULT_MODEL).resolve()


@click.command(help=__doc__)
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--shape", default="360m", show_default=True, type=click.Choice(list(SHAPES)))
@click.option("--seed", default=0, show_default=True)
def main(out: Path, shape: str, seed: int) -> None:
    print(f"{out}: {write_model(out, shape, seed) / 1e6:.0f}M parameters")


if __name__ == "__main__":
    main()
