"""Conversations as clients send them, each with what they ask for beside it."""

from typing import Any

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather at a place, in <b>bold</b> & \"quotes\".",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "Where"}, "days": {"type": "integer", "minimum": 1},
        "unit": {"type": "string", "enum": ["°C", "°F"]},
        "hours": {"type": "array", "items": {"type": "object", "required": [], "properties": {
            "at": {"type": "number"}}}}}}}}
CLOCK = {"type": "function", "function": {
    "name": "clock", "description": "What time it is.",
    "parameters": {"type": "object", "properties": {}, "required": []}}}

QUESTION = [{"role": "user", "content": "Hello there, what is 2 < 3 & \"why\"?"}]
TALK = [
    {"role": "system", "content": "You are terse.\n"},
    {"role": "user", "content": "  Héllo 🌊 — it's me "},
    {"role": "assistant", "content": "<think>\nA wave?\n</think>\n\nHi."},
    {"role": "user", "content": "Say {{ more }} {% now %}"},
]
CALLS = [
    {"role": "user", "content": "How is the weather in Ōsaka?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {
            "name": "get_weather", "arguments": {"place": "Ōsaka", "days": 2, "hours": [{"at": 1.5}]}}},
        {"id": "call_2", "type": "function", "function": {"name": "clock", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "call_1", "name": "get_weather", "content": "{\"sky\": \"grey\"}"},
    {"role": "tool", "tool_call_id": "call_2", "name": "clock", "content": "noon"},
    {"role": "assistant", "content": "Grey.", "name": None},
    {"role": "user", "content": "Thanks"},
]
PARTS = [
    {"role": "user", "content": [
        {"type": "text", "text": " What is this? "}, {"type": "image"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
    {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
    {"role": "user", "content": [{"type": "text", "text": "Sure?"}, {"type": "text", "text": " Really?"}]},
]
THOUGHTS = [
    {"role": "user", "content": "Think."},
    {"role": "assistant", "reasoning": "Hm.", "content": "I did."},
    {"role": "user", "content": "Again."},
    {"role": "assistant", "thinking": "Hm?", "reasoning_content": None, "content": "Twice."},
]
TWICE = [{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}]
OPEN = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, two,  "}]
OPEN_PARTS = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": [
    {"type": "text", "text": "One,"}, {"type": "text", "text": " two"}, {"type": "image"}]}]

CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "question": (QUESTION, {}),
    "talk": (TALK, {"eos_token": "</s>"}),
    "without a prompt": (TALK, {"add_generation_prompt": False}),
    "tools": (CALLS, {"tools": [WEATHER, CLOCK]}),
    "no tools": (QUESTION, {"tools": []}),
    "calls": (CALLS, {}),
    "parts": (PARTS, {}),
    "thoughts": (THOUGHTS, {"enable_thinking": False}),
    "same role twice": (TWICE, {}),
    "documents": (QUESTION, {"documents": [{"title": "A", "text": "A long text about <a>"},
                                           {"title": "B", "text": "b"}]}),
    "variables": (QUESTION, {"date_string": "1 May 2025", "enable_thinking": True, "style": {"tone": "warm"}}),
    "continued": (OPEN, {"continue_final_message": True}),
    "continued parts": (OPEN_PARTS, {"continue_final_message": True}),
    "continued talk": (TALK, {"continue_final_message": True}),
    "nothing to continue": (CALLS[:2], {"continue_final_message": True}),
}
