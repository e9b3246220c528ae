"""The names that checkpoints give the layers of a model. A layer's tensors are NAME.weight, NAME.bias, or what its
weight format says."""

from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True)
class BlockNames:
    """The names of the layers of one decoder block; an empty one stands for a layer that it does not have. A family
    whose blocks have others derives a class."""

    attention_norm: str = "input_layernorm"
    qkv: str = ""                        # where q, k and v are one linear
    q: str = "self_attn.q_proj"
    k: str = "self_attn.k_proj"
    v: str = "self_attn.v_proj"
    q_norm: str = "self_attn.q_norm"     # in families that have it
    k_norm: str = "self_attn.k_norm"
    query_latent: str = "self_attn.q_a_proj"  # these make the latent rows, of families that have them
    query_latent_norm: str = "self_attn.q_a_layernorm"
    latent: str = "self_attn.kv_a_proj_with_mqa"
    latent_norm: str = "self_attn.kv_a_layernorm"
    kv: str = "self_attn.kv_b_proj"      # k and v of the latent row, head by head
    attention_output: str = "self_attn.o_proj"
    attention_post_norm: str = ""        # of what attention gives
    feed_forward_norm: str = "post_attention_layernorm"
    gate_up: str = ""                    # where the two are one linear
    gate: str = "mlp.gate_proj"
    up: str = "mlp.up_proj"
    down: str = "mlp.down_proj"
    feed_forward_post_norm: str = ""
    recurrence: str = "linear_attn"      # the layer in attention's place, of blocks that carry a state
    sinks: str = ""                      # of attention's heads
    router: str = "mlp.gate"             # of a mixture of experts
    choice_bias: str = ""                # the tensor's whole name
    expert_gate: str = "mlp.experts.{expert}.gate_proj"  # of one, or of all without its number
    expert_up: str = "mlp.experts.{expert}.up_proj"
    expert_down: str = "mlp.experts.{expert}.down_proj"
    shared_gate: str = "mlp.shared_experts.gate_proj"
    shared_up: str = "mlp.shared_experts.up_proj"
    shared_down: str = "mlp.shared_experts.down_proj"
    shared_weight: str = "mlp.shared_expert_gate"  # of the linear that weighs it


@dataclass(frozen=True, slots=True)
class TensorNames:
    """The names of all layers of a model. The defaults are those of Llama and of most others."""

    embedding: str = "model.embed_tokens"
    positions: str = ""                  # of the embedding of positions
    embedding_norm: str = ""
    norm: str = "model.norm"
    head: str = "lm_head"
    blocks: str = "model.layers.{index}"
    block: BlockNames = BlockNames()     # below the name of each block

    def of_block(self, index: int) -> BlockNames:
        """Returns the full names in one block."""
        prefix = self.blocks.format(index=index)
        full = {field: name and f"{prefix}.{name}" for field, name in asdict(self.block).items()}
        return replace(self.block, **full)

    @property
    def without_base(self) -> "TensorNames":
        """Returns the names of a checkpoint that was saved without what the head stands on: less their first part."""
        names = {field: name.partition(".")[2] for field, name in asdict(self).items()
                 if field in ("embedding", "positions", "embedding_norm", "norm", "blocks")}
        return replace(self, **names)


USUAL_NAMES = TensorNames()
