"""The base of `LLM` and `AsyncLLM`: the arguments by which a model is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.offline.outputs import Metric
from penstock.offline.sampling_params import SamplingParams
from penstock.system import child_environment

if TYPE_CHECKING:
    from penstock.offline.tokenizer import ModelTokenizer


class ModelOwner:
    """Has a model in this program. Its shards are processes that end with it: by `close`, at the end of a `with`, or
    when the program ends, however it does.

    `model` is a directory, a GGUF file or a name on the Hugging Face Hub. The other arguments are vLLM's, and those of
    Penstock's settings that have no other name there, such as `kv_memory` and `threads`; one that is not known is
    refused. `groups` names groups that run elsewhere, by `penstock group`; then no shards are started. The shards are
    started again when they are killed: answers pause, and do not change.
    """

    _waits: ClassVar[bool]
    """Whether the model is loaded once the object is made."""

    def __init__(
        self, model: str, *, tokenizer: str | None = None, tensor_parallel_size: int = 1,
        pipeline_parallel_size: int = 1, dtype: str = "auto", quantization: str | None = None,
        revision: str | None = None, seed: int | None = 0, max_model_len: int | None = None,
        max_num_seqs: int | None = None, max_num_batched_tokens: int | None = None, max_logprobs: int = 20,
        kv_cache_dtype: str = "auto", gpu_memory_utilization: float | None = None, enforce_eager: bool = False,
        enable_lora: bool = False, speculative_config: Mapping[str, Any] | None = None, download_dir: str | None = None,
        groups: str | Sequence[str] | None = None, **settings: Any,
    ) -> None:
        """Begins to load the model. Raises TypeError for an argument that is not taken, and ValueError for a value that
        is not; where it waits for the model RuntimeError, too, if that can't be started for another reason."""
        child_environment.prepare_grpc()
        from penstock.offline.model import Model  # which imports gRPC

        self._model = Model(self, {
            "model": model, "tokenizer": tokenizer, "tensor_parallel_size": tensor_parallel_size,
            "pipeline_parallel_size": pipeline_parallel_size, "dtype": dtype, "quantization": quantization,
            "revision": revision, "seed": seed, "max_model_len": max_model_len, "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens, "max_logprobs": max_logprobs,
            "kv_cache_dtype": kv_cache_dtype, "gpu_memory_utilization": gpu_memory_utilization,
            "enforce_eager": enforce_eager, "enable_lora": enable_lora, "speculative_config": speculative_config,
            "download_dir": download_dir, "groups": groups, **settings})
        if self._waits:
            self._model.wait()

    def get_tokenizer(self) -> ModelTokenizer:
        """Returns the model's tokenizer."""
        from penstock.offline.tokenizer import ModelTokenizer

        return ModelTokenizer(self._model.service, self._model.loop)

    def get_default_sampling_params(self) -> SamplingParams:
        """Returns the parameters that the model's generation_config.json proposes; they are used if they are given."""
        from penstock.offline.proposed import proposed

        return proposed(self._model.folder)

    def get_metrics(self) -> list[Metric]:
        """Returns the series of the engine and its requests that a server tells at `/metrics`, and vLLM's."""
        from penstock.offline.metrics import metrics

        return metrics(self._model.service)

    def close(self) -> None:
        """Ends the shards; answers that are under way fail."""
        self._model.close()
