"""Which layers of a model take no adapters, and why."""

from penstock.shard.models.config import ModelConfig
from penstock.shard.models.encoder_config import HEADS_OF_ENCODERS, EncoderConfig
from penstock.shard.models.names import BlockNames


def refused_linears(config: ModelConfig) -> dict[str, str]:
    """Returns, for linears whose names begin so, why a model takes no adapter for them."""
    refused = {config.names.embedding: "adapters of embeddings are not served"}
    if isinstance(config, EncoderConfig):
        refused |= dict.fromkeys(HEADS_OF_ENCODERS, "adapters of what makes vectors and scores are not served")
        if config.far is not None:
            linears = (name for index in range(config.num_layers) for name in _qkv(config.names.of_block(index)))
            refused |= dict.fromkeys(linears, "adapters of linears that read distances, too, are not served")
    for index in range(config.num_layers):
        names = config.names.of_block(index)
        if index in config.recurrent_blocks:
            refused[names.recurrence] = "adapters of recurrent layers are not served"
        elif config.attention.latent is not None:
            refused |= dict.fromkeys(_latent(names), "adapters of latent attention are not served")
        if config.experts_of(index) is not None:
            refused |= dict.fromkeys(_mixture(names), "adapters of mixtures of experts are not served")
    return {name: reason for name, reason in refused.items() if name}


def _qkv(names: BlockNames) -> list[str]:
    return [names.q, names.k, names.v]


def _latent(names: BlockNames) -> list[str]:
    return [names.q, names.query_latent, names.latent, names.kv, names.attention_output]


def _mixture(names: BlockNames) -> list[str]:
    experts = [name.partition(".{expert}")[0] for name in (names.expert_gate, names.expert_up, names.expert_down)]
    return [names.router, *experts, names.shared_gate, names.shared_up, names.shared_down, names.shared_weight]
