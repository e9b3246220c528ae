"""Puts our layers in the place of transformers' modules that compute the same."""

from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group
from penstock.shard.fallback.equal import GATED_LINEARS, gate_of, norm_of
from penstock.shard.fallback.modules import (
    OneOfSeveral,
    OurMlp,
    OurNorm,
    PackedEmbedding,
    PackedLinear,
    Replacement,
    SideBySide,
)
from penstock.shard.fallback.pre_norm import fuse_layer
from penstock.shard.fallback.rotation import replace_rotation, restore_rotation
from penstock.shard.layers.norm import make_norm
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.format import ITSELF, LinearPart, Place
from penstock.shard.weights.rank_weights import RankWeights
from penstock.shard.weights.stored import STORED_DTYPES, Entry

QKV = ("q_proj", "k_proj", "v_proj")
TRANSPOSED = Place(is_transposed=True)   # as the Conv1D of GPT-2's kin has its weight


class Replacer:
    """Replaces the modules of one model, layer by layer, so that no more than a layer is held twice."""

    def __init__(
        self, model: Any, path: Path, dtype: torch.dtype, kept: frozenset[str] = frozenset()
    ) -> None:
        """path: of the checkpoint; kept: the names of modules that stay as they are"""
        self._model = model
        self._kept = {id(module) for name, module in model.named_modules(remove_duplicate=False) if name in kept}
        self._dtype = dtype
        self._stored = StoredModules(model, path)
        self._weights = RankWeights(Checkpoint(path, self._stored), Group(), dtype)
        self._places: dict[int, list[tuple[nn.Module, str]]] = {}
        for parent in model.modules():
            for name, child in parent.named_children():
                self._places.setdefault(id(child), []).append((parent, name))
        self.counts: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        """Replaces the modules that it can, moves the others to the device of the kernels, and returns the number of
        each."""
        self._replace_vocabulary()
        for name, module in list(self._model.named_modules()):
            self._put_together(name, module)
        for kind in (self._mlp, self._linear, self._norm):
            for name, module in list(self._model.named_modules()):
                replacement = kind(name, module)
                if replacement is not None:
                    self._put(name, module, replacement)
        if self._kept:
            restore_rotation(self._model)
        elif replace_rotation(self._model):
            self.counts["rotation"] += 1
        for layer in list(self._model.modules()):
            if not self._kept and fuse_layer(layer):
                self.counts[type(layer).__name__] += 1
        for module in self._model.modules():
            has_parts = any(True for _ in module.children()) or any(True for _ in module.parameters(recurse=False))
            if not has_parts and not isinstance(module, OurNorm):
                module.register_forward_pre_hook(_contiguous)
        self._model.to(dispatch.device())
        return self.counts

    def _replace_vocabulary(self) -> None:
        """Replaces the head and the embedding, which are one weight where they are tied."""
        names = {id(module): name for name, module in self._model.named_modules()}
        head, embedding = self._model.get_output_embeddings(), self._model.get_input_embeddings()
        packed = None
        is_tied = head is not None and embedding is not None and head.weight is embedding.weight
        if self._is_replaced(head, nn.Linear):
            name = names[id(head)]
            packed = self._packed(name, head.weight, ITSELF)
            self._put(name, head, PackedLinear(packed, self._bias(name, head), self._dtype, torch.float32))
        if self._is_replaced(embedding, nn.Embedding) and embedding.max_norm is None:
            name = names[id(embedding)]
            packed = packed if is_tied and packed is not None else self._packed(name, embedding.weight, ITSELF)
            self._put(name, embedding, PackedEmbedding(packed, self._dtype))

    def _put_together(self, name: str, module: nn.Module) -> None:
        """Replaces q, k and v of an attention by one linear, where they are three."""
        linears: list[Any] = [getattr(module, child, None) for child in QKV]
        if not all(self._is_replaced(linear, nn.Linear) for linear in linears):
            return
        if len({(linear.in_features, linear.bias is None) for linear in linears}) != 1:
            return
        parts = [self._part(f"{name}.{child}", linear.weight, ITSELF)
                 for child, linear in zip(QKV, linears, strict=True)]
        bias = self._weights.biases(parts) if linears[0].bias is not None else None
        together = SideBySide(self._weights.linears(parts), bias, [part.out_features for _, part in parts])
        for number, (path, part) in enumerate(parts):
            self._put(path, linears[number], OneOfSeveral(
                together, number, part.out_features, part.in_features, self._dtype))

    def _mlp(self, name: str, module: nn.Module) -> nn.Module | None:
        activation = None if id(module) in self._kept else gate_of(module)
        if activation is None:
            return None
        gate, up, down = (module.get_submodule(linear) for linear in GATED_LINEARS)
        if not all(self._is_replaced(linear, nn.Linear) for linear in (gate, up, down)):
            return None
        parts = [self._part(f"{name}.{linear}", module.get_submodule(linear).weight, ITSELF)
                 for linear in GATED_LINEARS[:2]]
        bias = self._weights.biases(parts) if gate.bias is not None and up.bias is not None else None
        if bias is None and (gate.bias is not None or up.bias is not None):
            return None
        gate_up = PackedLinear(self._weights.linears(parts), bias, self._dtype)
        down_name = f"{name}.{GATED_LINEARS[2]}"
        own_down = PackedLinear(self._packed(down_name, down.weight, ITSELF), self._bias(down_name, down), self._dtype)
        for linear in GATED_LINEARS:
            self._stored.forget(f"{name}.{linear}")
        return OurMlp(gate_up, own_down, activation)

    def _linear(self, name: str, module: nn.Module) -> nn.Module | None:
        from transformers.pytorch_utils import Conv1D

        if not (self._is_replaced(module, nn.Linear) or self._is_replaced(module, Conv1D)):
            return None
        place = TRANSPOSED if isinstance(module, Conv1D) else ITSELF
        return PackedLinear(self._packed(name, module.weight, place), self._bias(name, module), self._dtype)

    def _norm(self, name: str, module: nn.Module) -> nn.Module | None:
        config = None if id(module) in self._kept else norm_of(module)
        if config is None:
            return None
        weights = [tensor.to(dispatch.device())[None] if isinstance(tensor, Tensor) else None
                   for tensor in (module.weight, getattr(module, "bias", None))]
        assert weights[0] is not None, "a norm that was found to be ours has a weight"
        return OurNorm(make_norm(config, weights[0], weights[1]), weights[0][0])

    def _is_replaced(self, module: Any, kind: type[nn.Module]) -> bool:
        """Tells whether a module is of this class itself, and its numbers are those that are computed with."""
        return type(module) is kind and module.weight.dtype is self._dtype and id(module) not in self._kept

    def _part(self, name: str, weight: Any, place: Place) -> tuple[str, LinearPart]:
        outputs, inputs = weight.shape[::-1] if place.is_transposed else weight.shape
        return name, LinearPart(outputs, inputs, slice(0, outputs), slice(0, inputs), place)

    def _packed(self, name: str, weight: Any, place: Place) -> Any:
        return self._weights.linears([self._part(name, weight, place)])

    def _bias(self, name: str, module: Any) -> Tensor | None:
        if getattr(module, "bias", None) is None:
            return None
        return self._weights.whole(f"{name}.bias", *module.bias.shape)

    def _put(self, name: str, module: nn.Module, replacement: nn.Module) -> None:
        self.counts[type(module).__name__] += 1
        for parent, attribute in self._places[id(module)]:
            setattr(parent, attribute, replacement)
        self._stored.forget(name)


def _contiguous(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Lets torch compute an activation of a part of each row in the same way for one row and for many."""
    return tuple(each.contiguous() if isinstance(each, Tensor) else each for each in inputs)


def read_weights(model: nn.Module) -> frozenset[str]:
    """Returns the names of our modules whose weights a model's code has taken without calling them."""
    return frozenset(name for name, module in model.named_modules(remove_duplicate=False)
                     if isinstance(module, Replacement) and module.was_read)


NAMES = {dtype: name for name, dtype in STORED_DTYPES.items()}


class StoredModules:
    """The parameters of a module in memory; see TensorFiles."""

    def __init__(self, module: nn.Module, path: Path) -> None:
        """path: of the checkpoint that they were read from, for messages"""
        self._tensors = {name: parameter.data for name, parameter in module.named_parameters(remove_duplicate=False)}
        self.paths = [path]
        self.entries = {name: Entry(path, NAMES[tensor.dtype], tuple(tensor.shape))
                        for name, tensor in self._tensors.items() if tensor.dtype in NAMES}

    def read(self, name: str, part: tuple[slice, ...]) -> Tensor:
        return self._tensors[name][part]

    def forget(self, layer: str) -> None:
        """Let go of a layer's tensors, which nothing reads again."""
        for name in [name for name in self._tensors if name.startswith(f"{layer}.")]:
            del self._tensors[name]
