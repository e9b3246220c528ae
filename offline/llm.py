"""`LLM`: a model in this program, by vLLM's names. It is imported with little, and imports the rest once it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.offline.outputs import BeamSearchOutput, LoRARequest, PromptScore, RequestOutput
from penstock.offline.owner import ModelOwner
from penstock.offline.sampling_params import BeamSearchParams, SamplingParams

if TYPE_CHECKING:
    from penstock.offline.prompts import PromptType

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

    def score(
        self, prompts: PromptType | Sequence[PromptType], *, use_tqdm: bool | Callable[..., Any] = False,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None = None,
    ) -> list[PromptScore]:
        """Returns the logprobs of the prompts' own tokens. A token is generated, too, and dropped: a prompt must leave
        room for it in the context. (vLLM's `score` compares two texts, by models that are not served here.)"""
        from penstock.offline.batch import answer, scores
        from penstock.offline.prompts import read_all

        params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
        return scores(answer(self._model, read_all(prompts), params, lora_request, None, use_tqdm))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
