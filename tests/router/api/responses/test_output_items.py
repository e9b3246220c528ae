"""Items and events of an answer's deltas, against the order that OpenAI's documentation has."""

from typing import Any

import pytest
from openai.types.responses import ResponseOutputItem
from pydantic import TypeAdapter

from penstock.router.api.responses.input_items import uncarried
from penstock.router.api.responses.output_items import CalledAs, OutputItems
from penstock.router.chat.deltas import Arguments, CallBegin, CallEnd, Content, Delta, Thinking
from tests.router.api.responses.asking import order

MESSAGE = ["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
           "output_item.done"]
REASONING = [name.replace("output_text", "reasoning_text") for name in MESSAGE]
CALL = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
CUSTOM = [name.replace("function_call_arguments", "custom_tool_call_input") for name in CALL]
ORDERS: dict[str, tuple[list[Delta], list[str]]] = {
    "text": ([Content("Hel"), Content("lo")], MESSAGE),
    "nothing": ([], [name for name in MESSAGE if name != "output_text.delta"]),
    "reasoning": ([Thinking("Hm"), Thinking("."), Content("Yes")], [*REASONING, *MESSAGE]),
    "calls": ([Content("So: "), CallBegin(0, "weather"), Arguments(0, '{"city"'), Arguments(0, ': "Rome"}'), CallEnd(0),
               CallBegin(1, "time"), Arguments(1, "{}"), CallEnd(1)], [*MESSAGE, *CALL, *CALL]),
    "custom": ([Thinking("Hm"), CallBegin(0, "patch"), Arguments(0, "*** Begin"), CallEnd(0), Content("Done")],
               [*REASONING, *CUSTOM, *MESSAGE]),
}


def made(deltas: list[Delta], is_whole: bool = True, **options: Any) -> tuple[list[dict[str, Any]], OutputItems]:
    tools = {"patch": CalledAs("patch", is_custom=True)}
    items = OutputItems("resp_abc", lambda call: f"call_{call.index}", tools, **options)
    events = [event for delta in deltas for event in items.take(delta)]
    return [*events, *items.finish(is_whole)], items


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_events(name: str) -> None:
    deltas, expected = ORDERS[name]
    events, items = made(deltas)
    assert order(events) == expected
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseOutputItem)
    for item in items.output:
        adapter.validate_python(item)
    finished = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["item"] for event in finished] == items.output
    assert [event["output_index"] for event in finished] == [*range(len(items.output))]
    assert all(item["status"] == "completed" for item in items.output)
    assert len({item["id"] for item in items.output}) == len(items.output)


def test_what_the_items_say() -> None:
    _, items = made([*ORDERS["reasoning"][0], *ORDERS["calls"][0][1:]], carries_reasoning=True)
    reasoning, message, weather, time = items.output
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert reasoning["summary"] == []
    assert uncarried(reasoning["encrypted_content"]) == "Hm."
    assert message["content"] == [{"type": "output_text", "text": "Yes", "annotations": [], "logprobs": []}]
    assert (weather["name"], weather["arguments"], weather["call_id"]) == ("weather", '{"city": "Rome"}', "call_0")
    assert (weather["id"], time["id"]) == ("fc_abc_2", "fc_abc_3")


@pytest.mark.parametrize("deltas", [[Thinking("Hm")], [Content("So")], ORDERS["calls"][0][:3]])
def test_an_answer_that_was_cut(deltas: list[Delta]) -> None:
    events, items = made(deltas, is_whole=False)
    assert items.output[-1]["status"] == "incomplete"
    assert events[-1]["item"] == items.output[-1]


def test_a_call_that_the_model_did_not_end() -> None:
    _, items = made(ORDERS["calls"][0][:3])
    assert [item["status"] for item in items.output] == ["completed", "incomplete"]


def test_events_join_to_the_items() -> None:
    for deltas, _ in ORDERS.values():
        events, items = made(deltas)
        for number, item in enumerate(items.output):
            text = "".join(event["delta"] for event in events
                           if event["type"].endswith(".delta") and event["output_index"] == number)
            whole = item.get("arguments", item.get("input"))
            assert text == (item["content"][0]["text"] if whole is None else whole)
