"""Makes outputs with vLLM's names of the events of a request."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from penstock.contract.row_result import TopLogprobs
from penstock.offline.outputs import CompletionOutput, Logprob, Logprobs, LoRARequest, RequestOutput, RequestTimes
from penstock.offline.prompts import Prompt
from penstock.offline.sampling_params import SamplingParams
from penstock.router.engine.stream import Ending, Event
from penstock.router.generation.answer import Answer
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.text.tokenizer import Tokenizer

_REASONS: dict[FinishReason, Literal["stop", "length"]] = {
    FinishReason.LENGTH: "length", FinishReason.EOS_TOKEN: "stop", FinishReason.STOP_SEQUENCE: "stop"}


@dataclass(slots=True)
class _Growing:
    """An answer so far. Its first `num_told` tokens, and `length_told` characters, were in a part that was told."""

    answer: Answer
    ids: list[int] = field(default_factory=list)
    text: str = ""
    logprob: float = 0.0
    """The sum of its tokens'."""
    logprobs: list[Logprobs] = field(default_factory=list)
    ending: Ending | None = None
    num_told: int = 0
    length_told: int = 0
    is_end_told: bool = False

    @property
    def has_news(self) -> bool:
        """Whether there are tokens, or an end, that were in no part."""
        return self.num_told < len(self.ids) or (self.ending is not None and not self.is_end_told)


class Collector:
    """Takes the events of all answers to one prompt, and makes outputs of those that have come."""

    def __init__(
        self, request_id: str, prompt: Prompt, params: SamplingParams, tokenizer: Tokenizer,
        lora_request: LoRARequest | None = None,
    ) -> None:
        self._request_id = request_id
        self._prompt = prompt
        self._params = params
        self._tokenizer = tokenizer
        self._lora_request = lora_request
        self._growing: list[_Growing] = []
        self._prompt_ids: list[int] = []
        self._prompt_logprobs: list[Logprobs | None] | None = None
        self._are_prompt_logprobs_told = False

    def begin(self, answers: Sequence[Answer]) -> None:
        """Takes the answers whose events will come."""
        self._growing = [_Growing(answer) for answer in answers]
        self._prompt_ids = [*answers[0].request.input_ids]  # shared by all outputs: it may be long

    def take(self, answer: Answer, event: Event) -> None:
        """Takes the next event of an answer."""
        growing, token, params = self._growing[answer.index], event.token, self._params
        growing.ids.append(token.id)
        growing.logprob += token.logprob
        if params.logprobs is not None:
            growing.logprobs.append(self._position(token.id, token.logprob, token.top_logprobs, params.logprobs))
        if params.detokenize:
            growing.text += token.text
        if event.ending is not None:
            growing.ending = event.ending
            growing.text = event.ending.text if params.detokenize else ""

    def end(self) -> None:
        """Forgets answers that did not come: a beam search may find fewer than were asked for."""
        self._growing = [each for each in self._growing if each.ending is not None]

    def output(self, is_delta: bool = False, is_aborted: bool = False) -> RequestOutput:
        """Returns the answers so far, the best of them if they have ended and more were generated than asked for; or
        the next parts of those that have one. Answers that were aborted have ended, too, also before they began."""
        if not self._growing:
            return self._nothing()
        first, chosen = self._growing[0].answer, self._growing
        is_over = all(each.ending is not None for each in self._growing)
        if is_over and len(chosen) > self._params.n:
            chosen = sorted(chosen, key=lambda each: each.logprob / len(each.ids), reverse=True)
        outputs = [self._completion(index, each, is_delta, is_aborted)
                   for index, each in enumerate(chosen[:self._params.n])
                   if not is_delta or each.has_news or (is_aborted and each.ending is None)]
        times = [each.answer.times for each in self._growing] if is_over else []
        return RequestOutput(
            request_id=self._request_id, prompt=self._prompt.text, prompt_token_ids=self._prompt_ids,
            outputs=outputs, finished=is_over or is_aborted, prompt_logprobs=self._of_prompt(first, is_delta),
            lora_request=self._lora_request, num_cached_tokens=first.hit_tokens,
            times=RequestTimes(min(each.queue for each in times), max(each.inference for each in times))
            if times else None)

    def _nothing(self) -> RequestOutput:
        """Returns the output of a request that was aborted before there were answers."""
        outputs = [CompletionOutput(index, "", [], 0.0, finish_reason="abort", lora_request=self._lora_request)
                   for index in range(self._params.n)]
        return RequestOutput(self._request_id, self._prompt.text, [*(self._prompt.token_ids or ())], outputs,
                             finished=True, lora_request=self._lora_request)

    def _completion(self, index: int, growing: _Growing, is_delta: bool, is_aborted: bool) -> CompletionOutput:
        start = begin = 0
        if is_delta:
            start, begin = growing.num_told, growing.length_told
            growing.is_end_told = growing.ending is not None
            growing.num_told, growing.length_told = len(growing.ids), len(growing.text)
        completion = CompletionOutput(
            index=index, text=growing.text[begin:], token_ids=growing.ids[start:],
            cumulative_logprob=growing.logprob, lora_request=self._lora_request,
            logprobs=None if self._params.logprobs is None else growing.logprobs[start:])
        if growing.ending is not None:
            completion.finish_reason = _REASONS[growing.ending.finish_reason]
            completion.stop_reason = self._stop_reason(growing.ids[-1], growing.ending)
            completion.score = growing.ending.score
        elif is_aborted:
            completion.finish_reason = "abort"
        return completion

    def _stop_reason(self, last_id: int, ending: Ending) -> int | str | None:
        if ending.finish_reason is FinishReason.EOS_TOKEN and last_id in (self._params.stop_token_ids or ()):
            return last_id
        return ending.stop

    def _of_prompt(self, answer: Answer, is_delta: bool) -> list[Logprobs | None] | None:
        """Returns the logprobs of the prompt, if they were asked for and have come; in parts once."""
        number, known, ids = self._params.prompt_logprobs, answer.prompt_logprobs, answer.request.input_ids
        if number is None or len(known.logprobs) < len(ids) - 1:
            return None  # it was aborted before they came
        if self._prompt_logprobs is None:
            top = known.top_logprobs or [()] * len(known.logprobs)
            self._prompt_logprobs = [None, *(
                self._position(token_id, logprob, tops, number, rank)
                for token_id, logprob, tops, rank in zip(ids[1:], known.logprobs, top, known.ranks, strict=True))]
        if is_delta and self._are_prompt_logprobs_told:
            return None
        self._are_prompt_logprobs_told |= is_delta
        return self._prompt_logprobs

    def _position(
        self, token_id: int, logprob: float, top: TopLogprobs, number: int, rank: int | None = None
    ) -> Logprobs:
        ranks = {token_id: rank} | {id: place for place, (id, _) in enumerate(top, 1)}
        return {id: Logprob(value, ranks.get(id), self._tokenizer.text_of(id))
                for id, value in ({token_id: logprob} | dict(top[:number])).items()}
