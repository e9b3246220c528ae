"""Makes outputs with vLLM's names of the events of a request."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.contract.row_result import TopLogprobs
from penstock.offline.outputs import CompletionOutput, Logprob, Logprobs, LoRARequest, RequestOutput, RequestTimes
from penstock.offline.sampling_params import SamplingParams
from penstock.router.engine.stream import Ending, Event, Token
from penstock.router.generation.answers import Answer, mean_logprob
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.text.tokenizer import Tokenizer

_REASONS: dict[FinishReason, Literal["stop", "length"]] = {
    FinishReason.LENGTH: "length", FinishReason.EOS_TOKEN: "stop", FinishReason.STOP_SEQUENCE: "stop"}


@dataclass(slots=True)
class _Growing:
    """An answer so far; `told` of its tokens were part of an output before."""

    answer: Answer
    tokens: list[Token] = field(default_factory=list)
    told: int = 0
    ending: Ending | None = None


class Collector:
    """Takes the events of all answers to one prompt, and makes outputs of those that have come."""

    def __init__(
        self, request_id: str, prompt: str | None, params: SamplingParams, tokenizer: Tokenizer,
        lora_request: LoRARequest | None = None,
    ) -> None:
        self._request_id = request_id
        self._prompt = prompt
        self._params = params
        self._tokenizer = tokenizer
        self._lora_request = lora_request
        self._growing: list[_Growing] = []

    def begin(self, answers: Sequence[Answer]) -> None:
        """Takes the answers whose events will come."""
        self._growing = [_Growing(answer) for answer in answers]

    def take(self, answer: Answer, event: Event) -> None:
        """Takes the next event of an answer."""
        growing = self._growing[answer.index]
        growing.tokens.append(event.token)
        growing.ending = event.ending

    def end(self) -> None:
        """Forgets answers that did not come: a beam search may find fewer than were asked for."""
        self._growing = [each for each in self._growing if each.ending is not None]

    @property
    def num_tokens(self) -> int:
        """How many tokens have come."""
        return sum(len(each.tokens) for each in self._growing)

    def output(self, is_delta: bool = False, is_aborted: bool = False) -> RequestOutput:
        """Returns the answers so far, the best of them if they have ended and more were generated than asked for; or
        of each only what no output had before. Answers that were aborted have ended, too."""
        first, chosen = self._growing[0].answer, self._growing
        is_over = all(each.ending is not None for each in self._growing)
        if is_over and len(chosen) > self._params.n:
            chosen = sorted(chosen, key=lambda each: mean_logprob(each.tokens), reverse=True)
        outputs = [self._completion(index, each, each.told if is_delta else 0)
                   for index, each in enumerate(chosen[:self._params.n])]
        for each, output in zip(self._growing, outputs, strict=False):
            each.told = len(each.tokens)
            if is_aborted and each.ending is None:
                output.finish_reason = "abort"
        times = [each.answer.times for each in self._growing] if is_over else []
        return RequestOutput(
            request_id=self._request_id, prompt=self._prompt, prompt_token_ids=[*first.request.input_ids],
            outputs=outputs, finished=is_over or is_aborted, prompt_logprobs=self._prompt_logprobs(first),
            lora_request=self._lora_request, num_cached_tokens=first.hit_tokens,
            times=RequestTimes(min(each.queue for each in times), max(each.inference for each in times))
            if times else None)

    def _completion(self, index: int, growing: _Growing, start: int) -> CompletionOutput:
        tokens, ending, params = growing.tokens[start:], growing.ending, self._params
        completion = CompletionOutput(
            index=index, text=self._text(growing, start), token_ids=[token.id for token in tokens],
            cumulative_logprob=sum(token.logprob for token in growing.tokens), lora_request=self._lora_request)
        if params.logprobs is not None:
            completion.logprobs = [self._position(token.id, token.logprob, token.top_logprobs, params.logprobs)
                                   for token in tokens]
        if ending is None:
            return completion
        return replace(completion, finish_reason=_REASONS[ending.finish_reason],
                       stop_reason=self._stop_reason(growing, ending), score=ending.score)

    def _text(self, growing: _Growing, start: int) -> str:
        """Returns the answer's text, or the part that tokens from `start` on have added to it."""
        if not self._params.detokenize:
            return ""
        if growing.ending is None:
            return self._joined(growing.tokens[start:])
        return growing.ending.text[len(self._joined(growing.tokens[:start])):]

    def _joined(self, tokens: Sequence[Token]) -> str:
        # Where a stop string is left out, so are special tokens: their text is what was held until then.
        has_special = self._params.include_stop_str_in_output
        return "".join(token.text for token in tokens if not (has_special and token.is_special))

    def _stop_reason(self, growing: _Growing, ending: Ending) -> int | str | None:
        last = growing.tokens[-1].id
        if ending.finish_reason is FinishReason.EOS_TOKEN:
            return last if last in (self._params.stop_token_ids or ()) else None
        if ending.finish_reason is not FinishReason.STOP_SEQUENCE:
            return None
        stops = [self._params.stop] if isinstance(self._params.stop, str) else self._params.stop or []
        text = self._tokenizer.decode([token.id for token in growing.tokens])
        found = [(text.rfind(stop) + len(stop), stop) for stop in stops if stop in text]
        return max(found, default=(0, None))[1]

    def _prompt_logprobs(self, answer: Answer) -> list[Logprobs | None] | None:
        number, known = self._params.prompt_logprobs, answer.prompt_logprobs
        if number is None or len(known.logprobs) < len(answer.request.input_ids) - 1:
            return None  # it was aborted before they came
        top = known.top_logprobs or [()] * len(known.logprobs)
        return [None, *(self._position(*row, number) for row in zip(
            answer.request.input_ids[1:], known.logprobs, top, strict=True))]

    def _position(self, token_id: int, logprob: float, top: TopLogprobs, number: int) -> Logprobs:
        ranks = {id: rank for rank, (id, _) in enumerate(top, 1)}
        return {id: Logprob(value, ranks.get(id), self._tokenizer.text_of(id))
                for id, value in ({token_id: logprob} | dict(top[:number])).items()}
