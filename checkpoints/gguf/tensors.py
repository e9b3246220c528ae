"""The names that the tensors of GGUF files have in a checkpoint, and those tensors whose rows are in another order."""

import re
from collections.abc import Mapping
from typing import Any

from penstock.checkpoints.gguf.reader import Tensor

HEAD = "output.weight"
LAYERS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYERS_OF_BLOCKS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
PLAIN = ("F32", "F16", "BF16")
WITHOUT_USE = ("rope_freqs.weight",)     # config.json has what it says
ROTATED = ("self_attn.q_proj", "self_attn.k_proj")


def name_of(tensor: str) -> str:
    """Returns a tensor's name in a checkpoint; one that is not known keeps its own."""
    layer, _, kind = tensor.rpartition(".")
    if layer in LAYERS:
        return f"{LAYERS[layer]}.{kind}"
    found = re.fullmatch(r"blk\.(\d{1,6})\.(\w+)", layer)
    if found and found[2] in LAYERS_OF_BLOCKS:
        return f"model.layers.{found[1]}.{LAYERS_OF_BLOCKS[found[2]]}.{kind}"
    return tensor


def linear_types(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Returns the types of the linears that are quantised, by their names in a checkpoint."""
    return {name_of(name).rpartition(".")[0]: tensor.kind for name, tensor in tensors.items()
            if tensor.kind not in PLAIN}


def index(tensors: Mapping[str, Tensor], paired_heads: int | None) -> dict[str, Any]:
    """Returns where each tensor of a checkpoint is.

    paired_heads: the size of a head if GGUF's writer put the two dimensions that a rotation turns side by side, as it
    does for a Llama, where checkpoints have those of the second half behind those of the first; else None
    """
    found = {}
    for name, tensor in tensors.items():
        if name in WITHOUT_USE:
            continue
        known = name_of(name)
        is_paired = paired_heads and known.rpartition(".")[0].endswith(ROTATED)
        found[known] = {"file": str(tensor.path), "type": tensor.kind, "shape": tensor.shape, "offset": tensor.offset,
                        **({"paired_heads": paired_heads} if is_paired else {})}
    return {"tensors": found}
