"""The matrices of a decoder, and how many other numbers it has, from its configuration alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from penstock.shard.communication.distributed import Group
from penstock.shard.layers.recurrence_parts import OwnRecurrence
from penstock.shard.models.config import ModelConfig
from penstock.shard.models.names import BlockNames
from penstock.shard.models.parts import ExpertsConfig, HeadNorm, LatentConfig, Qkv, RecurrenceConfig
from penstock.shard.weights.format import FormatOf, LinearPart
from penstock.shard.weights.stored import Entry, StoredTensor


@dataclass(frozen=True)
class Linear:
    """A matrix, or `count` of one shape."""

    name: str
    outputs: int
    inputs: int
    count: int = 1
    is_expert: bool = False              # of those among which each token has its own

    @property
    def num_elements(self) -> int:
        return self.outputs * self.inputs * self.count

    def num_bytes(self, format_of: FormatOf, dtype: torch.dtype) -> int:
        """Returns the bytes that it takes in memory in its format, about, in activations of this dtype."""
        format_ = format_of(self.name)
        whole = LinearPart(self.outputs, self.inputs, slice(0, self.outputs), slice(0, self.inputs))
        return self.count * sum(format_.num_bytes(_entry(stored), dtype)
                                for stored in format_.tensors(self.name, whole) if not stored.is_optional)


def _entry(stored: StoredTensor) -> Entry:
    """Returns a file's entry for a tensor; one whose shape only the file knows is small, and counts as empty."""
    return Entry(Path(), stored.dtypes[0], (0,) if stored.has_any_shape else stored.shape)


def block_linears(config: ModelConfig) -> Iterator[Linear]:
    """Yields the matrices of all blocks."""
    for index in range(config.num_layers):
        names = config.names.of_block(index)
        if config.recurrence is not None and index in config.recurrent_blocks:
            yield from _recurrence(config.recurrence, names, config.hidden_size)
        elif config.attention.latent is not None:
            yield from _latent(config, config.attention.latent, names)
        else:
            yield from _attention(config, names)
        experts = config.experts_of(index)
        yield from _mlp(config, names) if experts is None else _experts(experts, names, config.hidden_size)


def vocabulary_linears(config: ModelConfig) -> tuple[Linear, Linear | None]:
    """Returns the embedding, and the head; None for a head that is the embedding."""
    embedding = Linear(config.names.embedding, config.vocab_size, config.hidden_size)
    return embedding, None if config.head.is_tied else Linear(
        config.names.head, config.vocab_size, config.hidden_size)


def _attention(config: ModelConfig, names: BlockNames) -> Iterator[Linear]:
    attention, hidden = config.attention, config.hidden_size
    q, k = attention.num_heads * attention.head_dim, attention.num_kv_heads * attention.head_dim
    if attention.qkv in (Qkv.APART, Qkv.GATED):
        yield Linear(names.q, 2 * q if attention.qkv is Qkv.GATED else q, hidden)
        yield Linear(names.k, k, hidden)
        yield Linear(names.v, k, hidden)
    else:
        yield Linear(names.qkv, q + 2 * k, hidden)
    yield Linear(names.attention_output, hidden, q)


def _latent(config: ModelConfig, form: LatentConfig, names: BlockNames) -> Iterator[Linear]:
    heads, hidden = config.attention.num_heads, config.hidden_size
    if form.query_rank:
        yield Linear(names.query_latent, form.query_rank, hidden)
    yield Linear(names.q, heads * (form.plain_dim + form.turned_dim), form.query_rank or hidden)
    yield Linear(names.latent, form.rank + form.turned_dim, hidden)
    yield Linear(names.kv, heads * (form.plain_dim + form.value_dim), form.rank)
    yield Linear(names.attention_output, hidden, heads * form.value_dim)


def _recurrence(form: RecurrenceConfig, names: BlockNames, hidden: int) -> Iterator[Linear]:
    parts = OwnRecurrence.of(form, Group()).input_parts(names.recurrence, hidden)
    for name, outputs in {name: part.out_features for name, part in parts}.items():
        yield Linear(name, outputs, hidden)
    yield Linear(f"{names.recurrence}.out_proj", hidden, form.num_heads * form.value_dim)


def _mlp(config: ModelConfig, names: BlockNames) -> Iterator[Linear]:
    mlp, hidden = config.mlp, config.hidden_size
    if mlp.is_stacked:
        yield Linear(names.gate_up, 2 * mlp.inner_size, hidden)
    else:
        for name in (names.gate, names.up) if mlp.is_gated else (names.up,):
            yield Linear(name, mlp.inner_size, hidden)
    yield Linear(names.down, hidden, mlp.inner_size)


def _experts(experts: ExpertsConfig, names: BlockNames, hidden: int) -> Iterator[Linear]:
    """Yields those of all experts together: one format has them all."""
    number, inner, shared = experts.num_experts, experts.inner_size, experts.shared_size
    yield Linear(names.router, number, hidden)
    yield Linear(names.expert_gate.format(expert=0), inner, hidden, 2 * number, is_expert=True)
    yield Linear(names.expert_down.format(expert=0), hidden, inner, number, is_expert=True)
    if shared:
        yield Linear(names.shared_gate, shared, hidden, 2)
        yield Linear(names.shared_down, hidden, shared)
    if experts.is_shared_gated:
        yield Linear(names.shared_weight, 1, hidden)


def num_others(config: ModelConfig) -> int:
    """Returns how many numbers a model has beside its matrices: norms, biases, learned positions."""
    hidden, embedding, names = config.hidden_size, config.embedding, config.names
    norm = hidden * (config.norm.has_weight + config.norm.has_bias)
    total = norm * (1 + bool(names.embedding_norm)) + embedding.num_positions * hidden
    total += config.vocab_size * config.head.has_bias
    for index in range(config.num_layers):
        block = names.of_block(index)
        total += norm * sum(map(bool, (block.attention_norm, block.attention_post_norm, block.feed_forward_norm,
                                       block.feed_forward_post_norm)))
        is_recurrent = config.recurrence is not None and index in config.recurrent_blocks
        total += _recurrence_others(config.recurrence) if config.recurrence and is_recurrent else _attention_others(
            config)
        total += _feed_forward_others(config, index)
    return total


def _attention_others(config: ModelConfig) -> int:
    attention = config.attention
    q, kv, latent = (number * attention.head_dim for number in (attention.num_heads, 2 * attention.num_kv_heads, 0))
    qkv = q + kv
    norms = {HeadNorm.NONE: 0, HeadNorm.SHARED: 2 * attention.head_dim}.get(attention.head_norm, q + kv // 2)
    if attention.latent is not None:
        latent = attention.latent.rank + attention.latent.query_rank
        qkv, norms = latent + attention.latent.turned_dim, 0
    return (latent + norms * (config.head_norm.has_weight + config.head_norm.has_bias) + qkv * attention.qkv_bias
            + config.hidden_size * attention.output_bias + attention.num_heads * attention.has_sinks)


def _recurrence_others(form: RecurrenceConfig) -> int:
    channels = 2 * form.num_groups * form.key_dim + form.num_heads * form.value_dim
    norm = form.value_dim if form.is_delta else form.num_heads * form.value_dim
    return channels * (form.conv_width + form.conv_bias) + norm + form.num_heads * (2 if form.is_delta else 3)


def _feed_forward_others(config: ModelConfig, index: int) -> int:
    experts, hidden, mlp = config.experts_of(index), config.hidden_size, config.mlp
    if experts is None:
        return (mlp.inner_size * (1 + mlp.is_gated) + hidden) * mlp.has_bias
    number = experts.num_experts
    return number * ((2 * experts.inner_size + hidden + 1) * experts.has_bias + experts.has_choice_bias)
