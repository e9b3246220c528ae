"""Penstock, a server for large language models; its packages lie beside this folder, which links to them.

Programs without a server import from here, by vLLM's names."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.offline.async_llm import AsyncEngineArgs, AsyncLLM
    from penstock.offline.llm import LLM
    from penstock.offline.outputs import (
        ClassificationRequestOutput,
        CompletionOutput,
        Counter,
        EmbeddingRequestOutput,
        Gauge,
        Histogram,
        LoRARequest,
        PoolingRequestOutput,
        RequestOutput,
        ScoringRequestOutput,
    )
    from penstock.offline.pooling_params import PoolingParams
    from penstock.offline.prompts import PromptType, TextPrompt, TokensPrompt
    from penstock.offline.sampling_params import (
        BeamSearchParams,
        RequestOutputKind,
        SamplingParams,
        StructuredOutputsParams,
    )

__all__ = [
    "LLM", "AsyncEngineArgs", "AsyncLLM", "BeamSearchParams", "ClassificationRequestOutput", "CompletionOutput",
    "Counter", "EmbeddingRequestOutput", "Gauge", "Histogram", "LoRARequest", "PoolingParams", "PoolingRequestOutput",
    "PromptType", "RequestOutput", "RequestOutputKind", "SamplingParams", "ScoringRequestOutput",
    "StructuredOutputsParams", "TextPrompt", "TokensPrompt"]

_PLACES = {
    "LLM": "llm", **dict.fromkeys(("AsyncEngineArgs", "AsyncLLM"), "async_llm"),
    **dict.fromkeys(
        ("ClassificationRequestOutput", "CompletionOutput", "Counter", "EmbeddingRequestOutput", "Gauge", "Histogram",
         "LoRARequest", "PoolingRequestOutput", "RequestOutput", "ScoringRequestOutput"), "outputs"),
    "PoolingParams": "pooling_params",
    **dict.fromkeys(("PromptType", "TextPrompt", "TokensPrompt"), "prompts"),
    **dict.fromkeys(("BeamSearchParams", "RequestOutputKind", "SamplingParams", "StructuredOutputsParams"),
                    "sampling_params")}


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used: the commands do without."""
    if name not in _PLACES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(f"penstock.offline.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
