"""Why a model's bits depend on the number of shards, where they do."""

from penstock.shard.communication.own_inputs import NUM_SEGMENTS
from penstock.shard.layers.heads import OwnHeads
from penstock.shard.models.config import ModelConfig


def inequality(config: ModelConfig, world_size: int) -> str:
    """Says why another number of shards gives other bits; the text is empty if it does not."""
    if NUM_SEGMENTS % world_size:
        return f"{world_size} shards do not divide the {NUM_SEGMENTS} segments of a row-parallel sum"
    attention, form = config.attention, config.recurrence
    inputs = {"heads * dimensions": attention.num_heads * attention.output_dim}
    if form is not None:
        inputs["recurrent heads * dimensions"] = form.num_heads * form.value_dim
    odd = [f"{name} = {size}" for name, size in inputs.items() if size % NUM_SEGMENTS]
    if odd:
        return f"{NUM_SEGMENTS} does not divide {' and '.join(odd)}"
    if len({len(own.heads) for own in OwnHeads.of_all(attention, world_size)}) > 1:
        return (f"{attention.num_heads} heads, which read {attention.num_kv_heads} KV heads, cannot be dealt out "
                f"evenly over {world_size} shards")
    return ""
