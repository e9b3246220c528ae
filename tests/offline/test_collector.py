"""Outputs made of events that have come so far."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock import RequestOutputKind, SamplingParams
from penstock.offline.asking import Question
from penstock.offline.collector import Collector
from penstock.offline.prompts import Prompt
from penstock.offline.streaming import Streamed
from penstock.router.engine.stream import Ending, Event, PromptLogprobs, Token
from penstock.router.scheduling.finish_reason import FinishReason


def begun(**params: Any) -> tuple[Collector, Any]:
    """A collector that has begun to take one answer."""
    answer = SimpleNamespace(
        index=0, request=SimpleNamespace(input_ids=[5, 6, 7]), hit_tokens=0, prompt_logprobs=PromptLogprobs(),
        times=SimpleNamespace(queue=0.0, inference=0.0))
    tokenizer: Any = SimpleNamespace(text_of=str)
    collector = Collector("1", Prompt(None, (5, 6, 7)), SamplingParams(**params), tokenizer)
    collector.begin([cast(Any, answer)])
    return collector, answer


def test_text_that_comes_with_a_special_token_is_told_once() -> None:
    collector, answer = begun(stop="ab")
    told = ""
    tokens = [Token(1, "x", 0.0, False), Token(2, "a", 0.0, True), Token(3, "y", 0.0, False)]
    for token in tokens:  # the "a" was held, as a stop string may begin with it, and comes with the special token
        collector.take(answer, Event(token))
        told += collector.output(is_delta=True).outputs[0].text
    collector.take(answer, Event(Token(4, "z", 0.0, False), Ending(FinishReason.LENGTH, "xayz", 4)))
    told += collector.output(is_delta=True).outputs[0].text
    assert told == "xayz"


def test_outputs_have_what_has_come_and_stay_as_they_are() -> None:
    collector, answer = begun(logprobs=1, n=1)
    cumulative, told = [], []
    for number, text in enumerate(["a", "b", "c"]):
        ending = Ending(FinishReason.STOP_SEQUENCE, "ab", 3, stop="c") if number == 2 else None
        collector.take(answer, Event(Token(number, "" if ending else text, -1.0, False, ((number, -1.0),)), ending))
        cumulative.append(collector.output().outputs[0])
        told.append(len(collector.output(is_delta=True).outputs[0].token_ids))
    assert told == [1, 1, 1]
    assert [each.text for each in cumulative] == ["a", "ab", "ab"]
    assert [each.token_ids for each in cumulative] == [[0], [0, 1], [0, 1, 2]]
    assert [[*position] for each in cumulative for position in each.logprobs or ()] == [[0], [0], [1], [0], [1], [2]]
    assert [each.cumulative_logprob for each in cumulative] == [-1.0, -2.0, -3.0]
    assert [(each.finish_reason, each.stop_reason) for each in cumulative] == [(None, None)] * 2 + [("stop", "c")]


def test_an_output_of_all_tokens_leaves_the_next_part_as_it_is() -> None:
    collector, answer = begun()
    collector.take(answer, Event(Token(1, "x", 0.0, False)))
    assert collector.output(is_delta=True).outputs[0].text == "x"
    collector.take(answer, Event(Token(2, "y", 0.0, False), Ending(FinishReason.LENGTH, "xy", 2)))
    assert collector.output().outputs[0].text == "xy"
    [part] = collector.output(is_delta=True).outputs
    assert (part.text, part.token_ids) == ("y", [2])
    assert collector.output(is_delta=True).outputs == []


def test_parts_are_of_answers_that_have_news() -> None:
    collector, answer = begun(n=2, prompt_logprobs=0)
    other = SimpleNamespace(**{**vars(answer), "index": 1})
    answer.prompt_logprobs = PromptLogprobs([-1.0, -2.0], ranks=[1, 3])
    collector.begin([answer, other])
    parts = []
    for owner, event in ((answer, Event(Token(1, "x", 0.0, False), Ending(FinishReason.LENGTH, "x", 1))),
                         (other, Event(Token(2, "y", 0.0, False))),
                         (other, Event(Token(3, "z", 0.0, False), Ending(FinishReason.EOS_TOKEN, "yz", 2)))):
        collector.take(owner, event)
        parts.append(collector.output(is_delta=True))
    told = [[(each.index, each.text, each.finish_reason) for each in part.outputs] for part in parts]
    assert told == [[(0, "x", "length")], [(1, "y", None)], [(1, "z", "stop")]]
    assert [part.prompt_logprobs is None for part in parts] == [False, True, True]
    assert [part.finished for part in parts] == [False, False, True]
    assert len(collector.output().prompt_logprobs or ()) == 3


def test_an_abort_tells_of_answers_that_had_not_ended() -> None:
    collector, answer = begun(n=2)
    other = SimpleNamespace(**{**vars(answer), "index": 1})
    collector.begin([answer, cast(Any, other)])
    collector.take(answer, Event(Token(1, "x", 0.0, False), Ending(FinishReason.LENGTH, "x", 1)))
    assert [each.index for each in collector.output(is_delta=True).outputs] == [0]
    [aborted] = collector.output(is_delta=True, is_aborted=True).outputs
    assert (aborted.index, aborted.finish_reason) == (1, "abort")


def test_a_request_that_is_aborted_before_its_first_token() -> None:
    collector, _ = begun(prompt_logprobs=0)
    output = collector.output(is_aborted=True)
    assert (output.finished, output.prompt_logprobs) == (True, None)
    assert output.outputs[0].finish_reason == "abort"


def test_a_request_that_is_aborted_before_it_has_answers() -> None:
    output = Collector("1", Prompt("a"), SamplingParams(n=2, logprobs=1), cast(Any, None)).output(is_aborted=True)
    assert (output.finished, output.prompt, output.prompt_token_ids) == (True, "a", [])
    assert [(each.index, each.text, each.finish_reason) for each in output.outputs] == [
        (0, "", "abort"), (1, "", "abort")]


@pytest.mark.parametrize("kind", [RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE])
def test_the_best_answers_are_not_told_while_they_grow(kind: RequestOutputKind) -> None:
    with pytest.raises(ValueError, match="`best_of` above `n` needs an `output_kind` of FINAL_ONLY"):
        Streamed(Question("1", Prompt("a"), SamplingParams(best_of=3, output_kind=kind)))
    Streamed(Question("1", Prompt("a"), SamplingParams(best_of=3, output_kind=RequestOutputKind.FINAL_ONLY)))
