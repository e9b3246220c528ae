"""The page in a browser, before a real server: what a user types, sees, and stops."""

import json
import re
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.e2e.browser import CHROMIUM, Tab, new_tab
from tests.e2e.server import Server, serve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed: `apt-get install chromium`")]

IDLE = "document.querySelector('#stop').disabled && document.querySelector('.answer:last-child .note')?.textContent"
NUM_TOKENS = "document.querySelectorAll('#log .t').length"
ANSWER = "document.querySelector('.answer:last-child .text').textContent"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
async def tab(server: Server, browser: str) -> AsyncIterator[Tab]:
    async with new_tab(browser) as tab:
        await tab.call("Storage.clearDataForOrigin", origin=server.url, storageTypes="local_storage")
        await tab.resize(1280, 800)
        await tab.open(server.url)
        yield tab


async def set_field(tab: Tab, name: str, value: str) -> None:
    await tab.evaluate(f"""(() => {{
        const field = document.querySelector('#parameters').elements[{name!r}];
        field.value = {value!r};
        field.dispatchEvent(new Event('change', {{bubbles: true}}));
    }})()""")


async def test_completion(tab):
    """With the mouse; the text is what the server answers to the same request."""
    await tab.click("[value=completion]")
    await set_field(tab, "temperature", "0")
    await set_field(tab, "max_tokens", "30")
    await tab.click("#prompt")
    await tab.type("def open(path):")
    await tab.click("#send")
    note = await tab.until(IDLE)
    assert re.fullmatch(r"30 tokens, [\d.]+ a second, ended by length", note)
    text = await tab.evaluate("document.querySelector('.text').textContent")
    answer = await tab.evaluate("""fetch('/generate', {
        method: 'POST', headers: {'content-type': 'application/json'},
        body: JSON.stringify({inputs: 'def open(path):', parameters: {max_new_tokens: 30}})}).then(r => r.json())""")
    assert text == "def open(path):" + answer["generated_text"]
    assert tab.errors == []


@pytest.mark.parametrize("mode", ["completion", "chat"])
async def test_an_answer_outlives_the_router(server, tab, mode):
    """It goes on in the same place, and has each token once."""
    await tab.click(f"[value={mode}]")
    await tab.click("[name=coloured]")
    await set_field(tab, "temperature", "0")
    await set_field(tab, "max_tokens", "1200")
    if mode == "chat":  # which would end too soon
        await set_field(tab, "grammar", "regex")
        await set_field(tab, "grammar_value", "[a-z ]{7000}")
    await tab.click("#prompt")
    await tab.type("def open(path):")
    await tab.press("Enter", modifiers=2)
    [router] = server.children("router")
    has_ended = "document.querySelector('#stop').disabled ? 'it has ended' : 'it runs'"
    assert await tab.until(f"{NUM_TOKENS} > 20 && ({has_ended})") == "it runs"
    router.kill()
    note = await tab.until(IDLE)
    assert "ended by" in note
    assert "failed" not in note
    text = await tab.evaluate("document.querySelector('.answer .text').textContent")
    again = await tab.evaluate(f"""import('/page/parameters.js').then(({{chat, completion}}) => {{
        const text = 'def open(path):', isChat = {json.dumps(mode == "chat")};
        const body = isChat ? chat([{{role: 'user', content: text}}]) : completion(text);
        const headers = {{'content-type': 'application/json'}};
        return fetch(isChat ? '/v1/chat/completions' : '/generate',
                     {{method: 'POST', headers, body: JSON.stringify(body)}}).then(r => r.json());
    }})""")
    assert text == (again["choices"][0]["message"]["content"] if mode == "chat" else
                    "def open(path):" + again["generated_text"])


async def test_chat(tab):
    """By keyboard alone, two turns."""
    await set_field(tab, "max_tokens", "5")
    await set_field(tab, "system", "Be brief.")
    for turn in (1, 2):
        await tab.type("Hello")
        await tab.press("Enter")
        await tab.until(f"document.querySelectorAll('.note').length === {turn} && {IDLE}")
    heads = await tab.evaluate("[...document.querySelectorAll('#log h2')].map(head => head.textContent)")
    assert heads == ["You", "Model", "You", "Model"]
    assert await tab.evaluate("document.querySelectorAll('.failed').length") == 0
    messages = await tab.evaluate(
        "import('/page/turns.js').then(turns => turns.nextBody('Bye', true).messages.map(message => message.role))")
    assert messages == ["system", "user", "assistant", "user", "assistant", "user"]
    assert await tab.evaluate("document.activeElement.id") == "prompt"
    await tab.click("#clear")
    assert await tab.evaluate("document.querySelector('#log').innerText") == (
        "Ask something. The model sees the whole conversation.")
    assert tab.errors == []


@pytest.mark.parametrize("stop", ["#stop", "Escape"])
async def test_stop(tab, stop):
    """What has come stays, and the server stops computing, on a slow device behind a slow network."""
    await tab.call("Emulation.setCPUThrottlingRate", rate=10)
    await tab.call("Network.enable")
    await tab.call("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=20_000,
                   uploadThroughput=-1)  # bytes per second: the answer takes ten seconds
    await tab.click("[value=completion]")
    await tab.click("[name=coloured]")
    await set_field(tab, "max_tokens", "1500")
    await set_field(tab, "temperature", "0")  # an answer that does not end before
    await tab.click("#prompt")
    await tab.type("def open(path):")
    await tab.press("Enter", modifiers=2)
    await tab.until(f"{NUM_TOKENS} > 3")
    await (tab.press(stop) if stop == "Escape" else tab.click(stop))
    assert "ended by you" in await tab.until(IDLE)
    assert await tab.evaluate(NUM_TOKENS) > 3
    await tab.until("document.querySelector('[data-figure=batch]').textContent === '0'")


async def test_probabilities(tab):
    """Each token tells how probable it was, by more than its colour, to the mouse and to the keyboard."""
    await tab.click("[value=completion]")
    await set_field(tab, "max_tokens", "20")
    await set_field(tab, "temperature", "0")  # an answer that does not end before
    await tab.click("#prompt")
    await tab.type("def open(path):")
    await tab.press("Enter", modifiers=2)
    await tab.until(IDLE)
    assert await tab.evaluate(NUM_TOKENS) == 0, "colours are off until they are asked for"
    text = await tab.evaluate(ANSWER)
    await tab.click("[name=coloured]")
    assert await tab.evaluate(ANSWER) == text
    titles = await tab.evaluate("[...document.querySelectorAll('#log .t')].map(token => token.title)")
    assert len(titles) == 20
    assert all(re.fullmatch(r"[\d.]+ %", title) for title in titles)
    await tab.click("#log .t")
    assert titles[0] in await tab.evaluate("document.querySelector('#status').textContent")
    await tab.evaluate("document.querySelector('#log').focus()")
    await tab.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight")
    assert titles[1] in await tab.until("document.querySelector('#status').textContent")


async def test_failures_are_told(tab):
    await tab.click("[value=completion]")
    await set_field(tab, "top_p", "0")
    await tab.click("#prompt")
    await tab.type("def open(path):")
    await tab.press("Enter", modifiers=2)
    note = await tab.until("document.querySelector('.failed.note')?.textContent")
    assert note.startswith("Input validation error: `top_p` must be")
    assert await tab.evaluate("document.querySelector('#prompt').value") == "def open(path):"
    await set_field(tab, "grammar", "json")
    await set_field(tab, "grammar_value", "{")
    await tab.press("Enter", modifiers=2)
    assert "no JSON" in await tab.until("document.querySelector('#status').textContent")
    assert await tab.evaluate("document.activeElement.name") == "grammar_value"


async def test_an_answer_tells_why_it_took_so_long(tab):
    await tab.click("[value=completion]")
    await set_field(tab, "max_tokens", "10")
    await tab.click("#prompt")
    await tab.type("def open(path):")
    await tab.press("Enter", modifiers=2)
    await tab.until("document.querySelector('.why') !== null")
    await tab.click(".why summary")
    assert re.fullmatch(r"Took [\d.]+ m?s: .*\.", await tab.until("document.querySelector('.why p')?.textContent"))
    phases = await tab.evaluate("[...document.querySelectorAll('.why li')].map(item => item.textContent.split(':')[0])")
    assert phases[-2:] == ["computing", "sending"]
    assert tab.errors == []


async def test_figures(tab):
    await tab.until("document.querySelector('[data-figure=rate]').textContent !== '–'")
    assert await tab.evaluate("[...document.querySelectorAll('#figures dd')].map(figure => figure.textContent)") == [
        "0", "0", "0 %", "0"]
    assert await tab.until("document.querySelector('#model').textContent") == "checkpoint"
    assert "demo_model/checkpoint" in await tab.evaluate("document.querySelector('#model').title")
    assert "max total tokens" in await tab.evaluate("document.querySelector('#info').textContent")


async def test_key_is_sent_and_not_kept(tab):
    await set_field(tab, "key", "sesame")
    sent = "import('/page/parameters.js').then(parameters => parameters.headers().authorization)"
    assert await tab.evaluate(sent) == "Bearer sesame"
    assert await tab.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("size", [(1280, 800), (390, 844), (360, 640)])
async def test_fits(tab, tmp_path, size, is_dark):
    """Nothing is wider than the screen, and the button is on it."""
    await tab.resize(*size, is_dark=is_dark)
    await tab.until(f"document.querySelector('#settings').open === {'true' if size[0] > 1000 else 'false'}")
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert await tab.evaluate("document.querySelector('#send').getBoundingClientRect().bottom <= innerHeight")
    await tab.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 5_000
