"""The page's conversation in a browser, before the real app over shards that give written answers: how answers are
shown, and what a user does with them."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from penstock.router.chat.template import ChatTemplate
from tests.e2e.browser import CHROMIUM, Tab, new_tab
from tests.paths import DEMO_MODEL
from tests.router.api.conftest import Server, starting

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed: `apt-get install chromium`")]

HOSTILE = """# Title

Some *words*, `code`, a [link](https://example.org/a), a [trap](javascript:alert(1)).

<script>window.isTaken = true</script><img src=x onerror="window.isTaken = true">
<a href="data:text/html,x" onclick="window.isTaken = true">raw</a>
![picture](https://example.org/secret.png)

| a | b |
|---|---|
| 1 | 2 |

```python
def f():
    return "<b>"
```
"""
MARKDOWN = "document.querySelector('.answer:last-child .markdown')"
BUTTONS = "[...document.querySelectorAll('.answer:last-child .acts button')].map(button => button.textContent).join()"


@dataclass
class Page:
    """A tab with the page, and the server that it came from."""

    tab: Tab
    server: Server

    async def ask(self, text: str) -> None:
        """Sends a message, and waits for the answer to be whole."""
        await self.tab.click("#prompt")
        await self.tab.type(text)
        await self.tab.press("Enter")
        await self.answered()

    async def answered(self) -> None:
        await self.tab.until(f"document.querySelector('#stop').disabled && {BUTTONS} === 'Copy,Regenerate'")

    async def press(self, selector: str, label: str) -> None:
        """Clicks on the first button with the label in the last element that the selector finds."""
        await self.tab.evaluate(f"""(() => {{
            const place = [...document.querySelectorAll({json.dumps(selector)})].at(-1);
            const button = [...place.querySelectorAll('button')].find(one => one.textContent === {json.dumps(label)});
            document.querySelector('#wanted')?.removeAttribute('id');
            button.id = 'wanted';
        }})()""")
        await self.tab.click("#wanted")

    async def copied(self) -> str:
        """The text of the clipboard, once the button that was pressed says that it is there."""
        await self.tab.until("document.querySelector('#wanted').textContent === 'Copied'")
        text: str = await self.tab.evaluate("navigator.clipboard.readText()")
        return text

    async def texts(self) -> list[str]:
        """The texts of the log, one for each turn."""
        texts: list[str] = await self.tab.evaluate(
            "[...document.querySelectorAll('#log .text')].map(place => place.innerText.trim())")
        return texts


async def opened(server: Server, tab: Tab) -> Page:
    await tab.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    await tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
    await tab.resize(1280, 800)
    await tab.open(str(server.client.make_url("/")))
    return Page(tab, server)


@pytest.fixture
async def page(browser: str, request: pytest.FixtureRequest) -> AsyncIterator[Page]:
    """The page of a server whose model always gives the same answer, the test's parameter."""
    answer = f"{getattr(request, 'param', 'So it is.')}<|im_end|>"
    async with starting() as start, new_tab(browser) as tab:
        yield await opened(await start(answer=answer, template=ChatTemplate.load(DEMO_MODEL)), tab)
        assert tab.errors == []


@pytest.mark.parametrize("page", [HOSTILE], indirect=True)
async def test_markdown_is_shown_and_nothing_in_it_acts(page: Page) -> None:
    await page.ask("Show it")
    kinds = await page.tab.evaluate(f"[...{MARKDOWN}.querySelectorAll('*')].map(one => one.localName).join()")
    assert {"h1", "em", "code", "table", "td", "pre"} <= set(kinds.split(","))
    assert not {"script", "img", "style", "iframe"} & set(kinds.split(","))
    text = await page.tab.evaluate(f"{MARKDOWN}.innerText")
    assert '<img src=x onerror="window.isTaken = true">' in text
    assert "![picture](https://example.org/secret.png)" in text
    links = await page.tab.evaluate(f"[...{MARKDOWN}.querySelectorAll('a')].map(one => one.getAttribute('href'))")
    assert links == ["https://example.org/a", None]
    assert await page.tab.evaluate(f"[...{MARKDOWN}.querySelectorAll('*')].every(one => [...one.attributes].every("
                                   "attribute => !attribute.name.startsWith('on') && attribute.name !== 'style'))")
    assert await page.tab.evaluate("window.isTaken === undefined")
    await page.press(".code", "Copy")
    assert await page.copied() == 'def f():\n    return "<b>"'


async def test_elements_are_made_of_no_text_but_by_the_library(page: Page) -> None:
    made = await page.tab.evaluate("""(() => {
        try { document.querySelector('#log').innerHTML = '<b>x</b>'; } catch (error) { return error.name; }
    })()""")
    page.tab.errors.clear()
    assert made == "TypeError"


@pytest.mark.parametrize("page", [HOSTILE], indirect=True)
async def test_without_the_libraries_the_text_is_shown_as_it_is(page: Page) -> None:
    await page.tab.call("Network.enable")
    await page.tab.call("Network.setBlockedURLs", urls=["*/page/marked.js"])
    await page.ask("Show it")
    assert await page.tab.evaluate("document.querySelector('.answer .text').textContent") == HOSTILE
    assert all("ERR_BLOCKED_BY_CLIENT" in error for error in page.tab.errors)
    page.tab.errors.clear()


async def test_what_the_parser_cannot_take_is_shown_as_it_is(page: Page) -> None:
    shown = await page.tab.evaluate("""(async () => {
        const [{View}, markdown] = await Promise.all([import('/page/view.js'), import('/page/markdown.js')]);
        await markdown.load();
        const view = new View(document.createElement('div')), forms = [];
        for (const text of ['> quoted', '\\n\\n' + '>'.repeat(20000)]) {
            view.take({text});
            view.draw();
            forms.push(view.shownAs);
        }
        return [...forms, view.place.textContent.length];
    })()""")
    assert shown == ["markdown", "plain", len("> quoted") + 2 + 20000]


async def test_copy_regenerate_and_edit(page: Page) -> None:
    await page.ask("One?")
    await page.press(".answer", "Copy")
    assert await page.copied() == "So it is."
    await page.ask("Two?")
    assert await page.texts() == ["One?", "So it is.", "Two?", "So it is."]
    await page.press(".answer", "Regenerate")
    await page.answered()
    assert await page.texts() == ["One?", "So it is.", "Two?", "So it is."]
    assert page.server.series()["tgi_request_count"] == 3
    await page.press(".user:first-child", "Edit")
    assert await page.tab.evaluate("document.activeElement.value") == "One?"
    await page.tab.press("Escape")
    assert len(await page.texts()) == 4
    await page.press(".user:first-child", "Edit")
    await page.tab.evaluate("document.activeElement.select()")
    await page.tab.type("Zero?")
    await page.tab.press("Enter")
    await page.answered()
    assert await page.texts() == ["Zero?", "So it is."]
    assert await page.tab.evaluate("document.activeElement.id") == "prompt"


async def test_a_page_over_plain_http_copies_too(page: Page) -> None:
    """There browsers have no interface to the clipboard."""
    await page.tab.evaluate("""(() => { const own = navigator.clipboard;
        window.readIt = () => own.readText();
        Object.defineProperty(navigator, 'clipboard', {configurable: true, get: () => undefined}); })()""")
    await page.ask("One?")
    await page.press(".answer", "Copy")
    await page.tab.until("document.querySelector('#wanted').textContent === 'Copied'")
    assert await page.tab.evaluate("window.readIt()") == "So it is."


async def test_the_system_message_is_remembered(page: Page) -> None:
    asks = ("import('/page/turns.js').then(turns => turns.nextBody('Hi', true).messages"
            ".map(message => message.role + ':' + message.content).join())")
    await page.tab.click("[name=system]")
    await page.tab.type("Be brief.")
    await page.tab.open(str(page.server.client.make_url("/")))
    assert await page.tab.until(asks) == "system:Be brief.,user:Hi"
    await page.tab.evaluate("document.querySelector('[name=system]').select()")
    await page.tab.press("Backspace")
    assert await page.tab.evaluate("localStorage.length") == 0
    assert await page.tab.evaluate(asks) == "user:Hi"


@pytest.mark.parametrize("mode", ["chat", "completion"])
@pytest.mark.parametrize("language", ["curl", "Python"])
async def test_an_exported_request_runs(page: Page, mode: str, language: str) -> None:
    """It is the last one that was made, and gets the same answer; a quote in it harms no shell."""
    await page.tab.evaluate("""(() => {
        const fields = document.querySelector('#parameters').elements;
        fields.top_k.value = 7, fields.seed.value = 3, fields.stop.value = "it's over", fields.key.value = "sesame";
    })()""")
    await page.tab.click(f"[value={mode}]")
    await page.tab.click("#prompt")
    await page.tab.type("It's\n$HOME \"so\"?")
    await page.tab.press("Enter", modifiers=2)
    await page.answered()
    await page.tab.click("#export")
    await page.tab.click(f"[name=language][value={language}]")
    program = await page.tab.evaluate("document.querySelector('#exported pre').textContent")
    assert "$HOME" in program
    assert "stream" not in program
    assert ("API_KEY" in program, "sesame" in program) == (True, False)
    await page.tab.click("#copy-export")
    await page.tab.until("document.querySelector('#copy-export').textContent === 'Copied'")
    assert await page.tab.evaluate("navigator.clipboard.readText()") == program
    command = ["bash", "-c", program] if language == "curl" else [sys.executable, "-c", program]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE,
                                                   env={**os.environ, "API_KEY": "sesame"})
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0
    if language == "curl":
        answer = json.loads(printed)
        printed = answer["choices"][0]["message"]["content"] if mode == "chat" else answer["generated_text"]
    assert printed.strip() == "So it is."
