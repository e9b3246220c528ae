"""A conversation with a model that answers as a script says: its answers follow from what stands last in the prompt."""

from penstock.bench.programs.scripted_model import by_last
from penstock.router.chat.template import ChatTemplate
from tests.fakes import SpeakingFleet
from tests.router.api.conftest import Start
from tests.router.api.openai.chats import WEATHER, chat

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
SCRIPT = {"in Rome?": CALL, "22 degrees": "It is warm.", "": "Hello."}


async def test_a_conversation(start: Start, hermes: ChatTemplate) -> None:
    """A tool's result is answered otherwise than the question before it, and each prompt is known whole, though most of
    the second comes from the cache."""
    server = await start(reply=by_last(SCRIPT), template=hermes)
    assert (await chat(server))["choices"][0]["message"]["content"] == "Hello."
    messages = [{"role": "user", "content": "How is it in Rome?"}]
    called = (await chat(server, messages=messages, tools=[WEATHER]))["choices"][0]["message"]
    assert called["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}
    messages += [called, {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "22 degrees"}]
    told = await chat(server, messages=messages, tools=[WEATHER])
    assert told["choices"][0]["message"]["content"] == "It is warm."
    assert told["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert isinstance(server.fleet, SpeakingFleet)
    _, asked, last = server.fleet.model.prompts
    assert last.startswith(asked.removesuffix("<|im_start|>assistant\n"))
    assert last.endswith("22 degrees<|im_end|>\n<|im_start|>assistant\n")
