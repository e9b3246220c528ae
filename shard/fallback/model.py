"""A causal language model that transformers computes, with our ops in it."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.kernels.attention_metadata import AttentionMetadata
from penstock.kernels.recurrent_state import LayerMemory
from penstock.shard.communication.distributed import Group
from penstock.shard.fallback import architectures
from penstock.shard.fallback.attention import register
from penstock.shard.fallback.choice import NoWayError, Way, choose_way, plain_logits, prompts
from penstock.shard.fallback.hidden import Hidden as HiddenStates
from penstock.shard.fallback.load import load
from penstock.shard.fallback.replace import Replacer, read_weights
from penstock.shard.models.end_tokens import EOS, end_tokens
from penstock.shard.models.keys import Keys, ModelConfigError
from penstock.shard.models.model import TRANSFORMERS, Hidden, ModelFacts
from penstock.shard.models.model_options import ModelOptions
from penstock.shard.models.reading import dtype_of
from penstock.shard.weights.rank_weights import Progress
from penstock.shard.weights.sites import Adaptable

log = logging.getLogger(__name__)

WAIT_FACTOR = 10                         # transformers runs so much more Python between two ops than our layers do
DEFAULT_CONTEXT = 32768                  # tokens, of a model whose configuration names no number


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model with our ops in it, and how it is run."""

    model: Any
    way: Way
    hidden: HiddenStates
    reason: str                          # why the ways before this one were not taken
    counts: Counter[str]                 # of what was replaced

    def __str__(self) -> str:
        replaced = ", ".join(f"{number} {name}" for name, number in sorted(self.counts.items())) or "nothing"
        how = "keys and values lie in the paged cache" if self.way.is_paged else (
            f"each sequence runs by itself with a cache of transformers' own, for {self.reason}")
        return (f"{type(self.model).__name__} is computed by transformers {architectures.version()}: our ops stand for "
                f"{replaced}; {how}")


class TransformersModel:
    """Runs a model of transformers on one rank."""

    inequality = ""
    is_capturable = False                # others' code may wait for the device
    adaptable: Adaptable | None = None

    def __init__(self, way: Way, hidden: HiddenStates, facts: ModelFacts, dtype: torch.dtype) -> None:
        self._way = way
        self._hidden = hidden
        self.facts = facts
        self.dtype = dtype

    @classmethod
    @torch.inference_mode()
    def load(
        cls, directory: Path, dtype: torch.dtype | None, group: Group, options: ModelOptions,
        progress: Progress | None = None,
    ) -> "TransformersModel":
        """Reads the checkpoint in a directory, in its own dtype if none is given.

        Raises ModelConfigError for a model that cannot be run, CheckpointError for weights.
        """
        keys = Keys.read(directory / "config.json")
        architectures.model_class(keys)
        _check_options(keys, options, group)
        dtype = dtype or dtype_of(keys, directory)
        register()
        dispatch.set_wait(WAIT_FACTOR)
        prepared = _prepare(keys, directory, dtype, progress)
        log.info("%s", prepared)
        config = prepared.model.config
        keys = keys.defaulting({EOS: getattr(config.get_text_config(decoder=True), EOS, None)})
        facts = ModelFacts(
            vocab_size=prepared.hidden.vocab_size, context_length=_context_length(config),
            layout=prepared.way.layout, eos_token_ids=end_tokens(keys, prepared.hidden.vocab_size),
            numerics=_numerics(), implementation=TRANSFORMERS, identity=repr(config))
        return cls(prepared.way, prepared.hidden, facts, dtype)

    @torch.inference_mode()
    def forward(self, input_ids: Tensor, metadata: AttentionMetadata, caches: Sequence[LayerMemory]) -> Hidden:
        states = self._way.forward(input_ids, metadata, caches)
        return Hidden(states, states)

    @torch.inference_mode()
    def logits(self, hidden: Hidden, rows: Tensor) -> Tensor | None:
        return self._hidden.logits(hidden.x[rows])


def _numerics() -> str:
    """Names whose ops compute what ours do not, on which kind of processor."""
    processor = torch.backends.cpu.get_cpu_capability()
    return f"{TRANSFORMERS}-{architectures.version()}/torch-{torch.__version__}-{processor}/"


def _check_options(keys: Keys, options: ModelOptions, group: Group) -> None:
    """Raises ModelConfigError for what only native models have."""
    wishes = {"--quantize": options.quantize, "--activations": options.activations,
              "--rope-scaling": options.rope_scaling, "--pooling": options.pooling,
              "--task": None if options.task == "generate" else options.task}
    for name, value in wishes.items():
        if value is not None:
            raise ModelConfigError(f"{keys.path}: {name} {value}: architectures: the model is computed by "
                                   "transformers, and this is for native models alone")
    if keys.get("quantization_config") is not None:
        raise keys.error("quantization_config", "none, for quantised weights are read for native models alone")
    if group.world_size > 1:
        raise ModelConfigError(f"{keys.path}: architectures: the model is computed by transformers, which runs on 1 "
                               f"shard, not on {group.world_size}")


def _expected(keys: Keys, model: Any) -> list[Tensor]:
    """Returns the logits that the model's own code gives before anything is replaced."""
    size = model.config.get_text_config().vocab_size
    try:
        return plain_logits(model, prompts(size))
    except Exception as error:           # any model's code may end in any
        raise ModelConfigError(f"{keys.path}: transformers {architectures.version()} cannot run this "
                               f"{type(model).__name__}: {error}") from error


def _prepare(keys: Keys, directory: Path, dtype: torch.dtype, progress: Progress | None) -> Prepared:
    """Reads the model and replaces what can be: all that is ours to compute, or all but what its code reaches into, or
    nothing. Raises ModelConfigError if it can be run in no way."""
    model = load(directory, dtype, progress)
    expected = _expected(keys, model)
    kept: frozenset[str] = frozenset()
    while True:
        counts = Replacer(model, directory, dtype, kept).run()
        try:
            way, hidden, reason = choose_way(model, dtype, expected)
            return Prepared(model, way, hidden, reason, counts)
        except NoWayError as error:
            if not counts:
                raise ModelConfigError(
                    f"{keys.path}: the {type(model).__name__} that transformers {architectures.version()} makes of it "
                    f"cannot be served: {error}") from error
            kept |= read_weights(model) or frozenset(name for name, _ in model.named_modules())
        model = load(directory, dtype, progress)


def _context_length(config: Any) -> int:
    """Returns the most tokens that a sequence may have: where rotations change with the longest sequence of a step, the
    context in which they do not."""
    text = config.get_text_config(decoder=True)
    names = ("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length", "max_seq_len",
             "context_length", "n_ctx", "max_target_positions")
    lengths = [value for value in (getattr(text, name, None) for name in names) if isinstance(value, int) and value > 0]
    rope = getattr(text, "rope_parameters", None) or {}
    for each in (rope, *(value for value in rope.values() if isinstance(value, dict))):  # layers may have their own
        if each.get("rope_type") in ("dynamic", "longrope"):
            original = each.get("original_max_position_embeddings") or getattr(
                text, "original_max_position_embeddings", None)
            lengths[:1] = [min([*lengths[:1], *([original] if original else [])], default=DEFAULT_CONTEXT)]
    return lengths[0] if lengths else DEFAULT_CONTEXT
