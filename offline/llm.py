"""`LLM`: a model in this program, by vLLM's names. It is imported with little, and imports the rest once it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from penstock.offline.outputs import (
    BeamSearchOutput,
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    LoRARequest,
    Made,
    PoolingOutput,
    PoolingRequestOutput,
    PromptScore,
    RequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from penstock.offline.owner import ModelOwner
from penstock.offline.pooling_params import PoolingParams
from penstock.offline.sampling_params import BeamSearchParams, SamplingParams

if TYPE_CHECKING:
    from penstock.offline.prompts import PromptType
    from penstock.router.pooling.pooled import Pooled

Messages = Sequence[Mapping[str, Any]]


class LLM(ModelOwner):
    """A language model in this program, which waits for its answers; see `ModelOwner` for its arguments."""

    _waits = True

    def generate(
        self, prompts: PromptType | Sequence[PromptType],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None, *,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None = None,
        priority: int | Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Returns the answers to prompts, in their order. A prompt is a text, token ids, or a dict with `prompt` or
        `prompt_token_ids`; parameters and adapters are the same for all, or a list with one for each. Prompts with a
        smaller `priority` are answered first."""
        from penstock.offline.batch import answer
        from penstock.offline.prompts import read_all

        return answer(self._model, read_all(prompts), sampling_params, lora_request, priority, use_tqdm)

    def chat(
        self, messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None = None,
        priority: int | Sequence[int] | None = None, *,
        chat_template: str | None = None, add_generation_prompt: bool = True, continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None, chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Returns the answers to one conversation, or to a list of them. The model's chat template writes the prompt,
        or `chat_template`, which is Jinja's source; it gets `tools` and `chat_template_kwargs`. A message describes
        tools to a template that takes none. Calls of them are in the answer's text, as the model writes them."""
        from penstock.offline.batch import answer
        from penstock.offline.chats import render_all, split
        from penstock.offline.prompts import Prompt

        texts = render_all(
            self._model.service, self._model.loop, split(messages), chat_template, tools, chat_template_kwargs or {},
            add_generation_prompt=add_generation_prompt, continue_final_message=continue_final_message)
        prompts = [Prompt(text, add_special_tokens=False) for text in texts]
        return answer(self._model, prompts, sampling_params, lora_request, priority, use_tqdm)

    def beam_search(
        self, prompts: PromptType | Sequence[PromptType], params: BeamSearchParams,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None = None,
        use_tqdm: bool | Callable[..., Any] = False,
    ) -> list[BeamSearchOutput]:
        """Returns the likeliest answers to each prompt that a beam search finds, the best first."""
        from penstock.offline.beam_search import search
        from penstock.offline.prompts import read_all

        return search(self._model, read_all(prompts), params, lora_request, use_tqdm)

    def embed(
        self, prompts: PromptType | Sequence[PromptType], *, use_tqdm: bool | Callable[..., Any] = True,
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """Returns the vectors of texts, in their order, by a model that makes vectors."""
        found = self._pool(prompts, "embed", pooling_params, lora_request, use_tqdm)
        return [self._made(EmbeddingOutput(each.values.tolist()), each.ids) for each in found]

    def classify(
        self, prompts: PromptType | Sequence[PromptType], *, use_tqdm: bool | Callable[..., Any] = True,
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None = None,
    ) -> list[ClassificationRequestOutput]:
        """Returns the scores of texts for all classes, in their order, by a model that classifies."""
        found = self._pool(prompts, "classify", pooling_params, lora_request, use_tqdm)
        return [self._made(ClassificationOutput(each.values.tolist()), each.ids) for each in found]

    def encode(
        self, prompts: PromptType | Sequence[PromptType],
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None, *,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None = None,
        pooling_task: str = "embed",
    ) -> list[PoolingRequestOutput[PoolingOutput]]:
        """Returns the numbers that a `pooling_task` makes of texts: `embed`, `classify`, or `token_embed`, of which
        each token has some."""
        found = self._pool(prompts, pooling_task, pooling_params, lora_request, use_tqdm)
        return [self._made(PoolingOutput([vector.tolist() for vector in each.of_tokens()]
                                         if pooling_task == "token_embed" else each.values.tolist()), each.ids)
                for each in found]

    def _pool(self, prompts: Any, task: str, pooling_params: Any, lora_request: Any, use_tqdm: Any) -> list[Pooled]:
        from penstock.offline.pooling import TASKS, pool
        from penstock.offline.prompts import read_all

        if task not in TASKS:
            raise ValueError(f"`pooling_task` must be one of {', '.join(TASKS)}. Given: {task!r:.100}")
        return pool(self._model, read_all(prompts), TASKS[task], pooling_params, lora_request, use_tqdm)

    def _made(self, outputs: Made, ids: Sequence[int]) -> PoolingRequestOutput[Made]:
        return PoolingRequestOutput(self._model.next_id(), outputs, [*ids])

    @overload
    def score(
        self, data_1: PromptType | Sequence[PromptType], data_2: None = None, *,
        use_tqdm: bool | Callable[..., Any] = False, pooling_params: None = None,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None = None,
    ) -> list[PromptScore]: ...

    @overload
    def score(
        self, data_1: str | Sequence[str], data_2: str | Sequence[str], *,
        use_tqdm: bool | Callable[..., Any] = False, pooling_params: PoolingParams | None = None,
        lora_request: LoRARequest | None = None,
    ) -> list[ScoringRequestOutput]: ...

    def score(
        self, data_1: Any, data_2: Any = None, *, use_tqdm: bool | Callable[..., Any] = False,
        pooling_params: PoolingParams | None = None, lora_request: Any = None,
    ) -> Any:
        """Returns the scores of pairs of texts, one and many or many and as many: by a model that reranks, or by how
        alike the vectors of one that makes these are.

        Without `data_2` it returns the logprobs of the own tokens of the prompts `data_1`, by a model that generates. A
        token is generated, too, and dropped: a prompt must leave room for it in the context.
        """
        if data_2 is not None:
            from penstock.offline.pooling import pairs_of, score

            scored = score(self._model, pairs_of(data_1, data_2), pooling_params or PoolingParams(), lora_request,
                           use_tqdm)
            ids = [each.ids for each in scored.made_of] if scored.is_of_pairs else [()] * len(scored.scores)
            return [self._made(ScoringOutput(each), own) for each, own in zip(scored.scores, ids, strict=True)]
        from penstock.offline.batch import answer, scores
        from penstock.offline.prompts import read_all

        if pooling_params is not None:
            raise ValueError("`pooling_params` are for pairs of texts: give `data_2`, too")
        params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
        return scores(answer(self._model, read_all(data_1), params, lora_request, None, use_tqdm))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
