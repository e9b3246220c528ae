"""What checkpoints call the layers of a model. A layer's tensors are NAME.weight, NAME.bias, or what its weight format
says."""

from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True)
class BlockNames:
    """The names of the layers of one decoder block. A family whose blocks have others derives a class."""

    attention_norm: str = "input_layernorm"
    q: str = "self_attn.q_proj"
    k: str = "self_attn.k_proj"
    v: str = "self_attn.v_proj"
    q_norm: str = "self_attn.q_norm"     # of each head, in families that have it
    k_norm: str = "self_attn.k_norm"
    attention_output: str = "self_attn.o_proj"
    feed_forward_norm: str = "post_attention_layernorm"
    gate: str = "mlp.gate_proj"
    up: str = "mlp.up_proj"
    down: str = "mlp.down_proj"


@dataclass(frozen=True, slots=True)
class TensorNames:
    """The names of all layers of a model. The defaults are those of Llama and of most others."""

    embedding: str = "model.embed_tokens"
    norm: str = "model.norm"
    head: str = "lm_head"
    blocks: str = "model.layers.{index}"
    block: BlockNames = BlockNames()     # below the name of each block

    def of_block(self, index: int) -> BlockNames:
        """Returns the full names in one block."""
        prefix = self.blocks.format(index=index)
        return replace(self.block, **{field: f"{prefix}.{name}" for field, name in asdict(self.block).items()})


USUAL_NAMES = TensorNames()
