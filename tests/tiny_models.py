"""Llama checkpoints small enough to make in a test: random weights, real files."""

import json
import shutil
from pathlib import Path

import torch
from torch import Tensor

from kernels.paged_attention import allocate_cache
from shard.batch import StepInputs
from shard.models.decoder import Decoder

DEMO_MODEL = Path(__file__).parents[1] / "deploy" / "demo_model" / "checkpoint"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def make_tiny(
    path: Path,
    *,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    layers: int = 2,
    hidden: int = 64,
    intermediate: int = 96,
    vocab: int = 160,
    context: int = 256,
    tied: bool = False,
    has_bias: bool = False,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    max_file_size: str = "1GB",
    is_old_config: bool = False,
    has_tokenizer: bool = False,
) -> Path:
    """Write a checkpoint into the folder `path` with transformers, and return the path.

    The weights are spread so that attention is uneven and logits differ by a few units.
    max_file_size   split the weights into files of at most this size, with an index
    is_old_config   write config.json as transformers 4 did
    has_tokenizer   add the demo model's tokenizer, which needs its vocabulary of 8192
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        vocab_size=vocab,
        max_position_embeddings=context,
        tie_word_embeddings=tied,
        attention_bias=has_bias,
        mlp_bias=has_bias,
        bos_token_id=0,
        eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    model = LlamaForCausalLM(config).to(dtype)
    _spread(model, seed)
    model.save_pretrained(path, max_shard_size=max_file_size)
    if is_old_config:
        _rewrite_old(path / "config.json")
    if has_tokenizer:
        assert vocab == 8192, f"the demo model's tokenizer has 8192 tokens, the model {vocab}"
        for name in TOKENIZER_FILES:
            shutil.copy(DEMO_MODEL / name, path / name)
    return path


def prompt_logits(
    decoder: Decoder, ids: Tensor, block_size: int = 16, output_rows: Tensor | None = None
) -> Tensor | None:
    """The logits after every token, or some, of one prompt, run as a single step: [T, V] on rank 0, None elsewhere.

    The blocks are out of order and full of NaN, so what is read before it is written shows.
    """
    num_tokens, num_blocks = len(ids), -(-len(ids) // block_size)
    caches = []
    for _ in range(decoder.config.num_layers):
        cache = allocate_cache(num_blocks, block_size=block_size, num_kv_heads=decoder.num_kv_heads,
                               head_dim=decoder.config.head_dim, dtype=decoder.dtype, device="cpu")
        cache.data.fill_(0xFF)
        caches.append(cache)
    table = torch.arange(num_blocks).flip(0)
    positions = torch.arange(num_tokens)
    return decoder.forward(StepInputs(
        input_ids=ids,
        positions=positions,
        slot_mapping=table[positions // block_size] * block_size + positions % block_size,
        tables=table.int()[None],
        starts=torch.zeros(1, dtype=torch.int32),
        counts=torch.tensor([num_tokens], dtype=torch.int32),
        output_rows=positions if output_rows is None else output_rows,
    ), caches)


def random_ids(length: int, vocab: int, seed: int = 0) -> Tensor:
    return torch.randint(vocab, (length,), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def _spread(model: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 2:
            # Outputs of about twice the size of the inputs.
            parameter.copy_(noise * 2 / parameter.shape[1] ** 0.5)
        else:
            parameter.copy_(noise * 0.1 + 1)


def _rewrite_old(path: Path) -> None:
    config = json.loads(path.read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["rope_scaling"] = None
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.40.0"
    if config["head_dim"] == config["hidden_size"] // config["num_attention_heads"]:
        del config["head_dim"]
    path.write_text(json.dumps(config, indent=2))
