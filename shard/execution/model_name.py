"""The name of a group's model: the digests of its weights, and of all settings that decide what is computed of them;
and what names how that is computed.

All ranks must have the same. Those of one machine read the same files, so the first of them digests the weights for
all.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.kernels import dispatch
from penstock.shard.communication.distributed import Group
from penstock.shard.config import ShardConfig
from penstock.shard.models.model import Model
from penstock.shard.pooling.pooler import Pooler
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.digest import check_unchanged
from penstock.shard.weights.stored import CheckpointError

CONTRACT_VERSION = 1                     # of the bits: other numbers for an equal request need another version
WAIT_SECONDS = 1.0
"""Between two words of progress to the launcher."""
NOTHING = "00" * 32
"""A digest's place, where there is none."""


class ModelName(NamedTuple):
    weights: str
    settings: str


class Naming:
    """Begins to digest the weights where this rank is the first of its machine; `agree` ends it, on all ranks.

    Raises CheckpointError for files that are missing.
    """

    def __init__(self, config: ShardConfig, group: Group) -> None:
        self._model = config.model
        self._group = group
        checkpoint = Checkpoint(config.model)
        self._stamps = checkpoint.stamps()
        self._digest = checkpoint.begin_digest() if group.rank % group.num_local == 0 else None

    def agree(self, settings: str, tell: Callable[[], None] = lambda: None) -> ModelName:
        """Returns the name, once the weights are digested, of which `tell` gets progress. Raises CheckpointError on
        all ranks if they have read different files, or have different settings; this rank's are `settings`."""
        self._wait(tell)
        weights, files, error = NOTHING, NOTHING, None
        try:
            weights = self._digest.hex() if self._digest else NOTHING
            check_unchanged(self._stamps)
            files = sha256(repr([*self._stamps.values()]).encode()).hexdigest()
        except CheckpointError as found:  # which the other ranks are to hear of, too
            error = found
        told = torch.tensor([[*bytes.fromhex(each)] for each in (weights, settings, files)], dtype=torch.uint8)
        names = [[bytes(part.tolist()).hex() for part in parts] for parts in self._group.all_gather(told)]
        if error is not None:
            raise error
        for rank, (_, own_settings, own_files) in enumerate(names):
            leader = rank - rank % self._group.num_local
            if own_files != names[leader][2]:
                raise CheckpointError(f"{self._model}: rank {rank} has read other files than rank {leader}: they were "
                                      "replaced meanwhile")
            if names[leader][0] != names[0][0]:
                raise CheckpointError(f"{self._model}: rank {leader} has other weights than rank 0 "
                                      f"({names[leader][0]:.16} and {names[0][0]:.16}): all machines of a group need "
                                      "the same files")
            if own_settings != names[0][1]:
                raise CheckpointError(f"{self._model}: rank {rank} has another config.json, or other settings, than "
                                      "rank 0: all shards of a group need the same")
        return ModelName(names[0][0], names[0][1])

    def _wait(self, tell: Callable[[], None]) -> None:
        """Waits until all weights are digested, in rounds that all ranks go through."""
        before = torch.zeros(0)
        while True:
            is_done = self._digest is None or self._digest.wait(WAIT_SECONDS)
            now: Tensor = self._group.all_gather(torch.tensor([is_done, self._digest.num_done if self._digest else 0]))
            if bool(now[:, 0].all()):
                return
            if not torch.equal(now, before):
                tell()
            before = now


def settings_digest(config: ShardConfig, model: Model, pooler: Pooler | None = None) -> str:
    """Returns the digest, in hex, of what decides answers beside weights, number formats and kernels: what
    configuration and command line say of the model, where its answers end, and how they are marked; or how its vectors
    and scores are made."""
    said = [model.facts.identity, sorted(model.facts.eos_token_ids), config.watermark_gamma, config.watermark_delta]
    if pooler is not None:
        said.append(pooler.identity)
    return sha256(json.dumps(said).encode()).hexdigest()


def numerics(model: Model, kv_dtype: str, num_ranks: int) -> str:
    """Names the numerics, which decide every bit of an answer apart from the model: kernels, number formats, and the
    number of ranks that share its layers, where another one gives other bits."""
    dtype = str(model.dtype).removeprefix("torch.")
    ranks = f"/ranks-{num_ranks}" if model.inequality else ""
    return f"{dispatch.path()}/{dtype}/{model.facts.numerics}kv-{kv_dtype}/contract-{CONTRACT_VERSION}{ranks}"
