"""Chromium without a window, driven over its DevTools protocol; an HTTP client and the Debian package suffice."""

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT = 60.0
KEYS = {"Backspace": 8, "Enter": 13, "Escape": 27, "Tab": 9}


class Tab:
    """A page in the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.errors: list[str] = []
        """What the page has thrown, or has written to its console as an error."""
        self._socket = socket
        self._numbers = itertools.count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """A command of the protocol and its result."""
        number = next(self._numbers)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        result = await asyncio.wait_for(reply, TIMEOUT)
        assert "error" not in result, f"{method}: {result}"
        found: dict[str, Any] = result["result"]
        return found

    async def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression of the page's language."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true; its value."""
        async with asyncio.timeout(TIMEOUT):
            while not (value := await self.evaluate(expression)):
                await asyncio.sleep(0.02)
        return value

    async def type(self, text: str) -> None:
        """Into what has the focus."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, modifiers: int = 0) -> None:
        """A key that is no letter; `modifiers`: 2 is Ctrl, 8 is Shift."""
        common = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": modifiers}
        text = {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def click(self, selector: str) -> None:
        """In the middle of the first element, once it no longer moves, with the mouse."""
        place = await self.evaluate(f"""(async () => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "nearest"}});
            for (let before = "";;) {{
                const {{x, y, width, height}} = element.getBoundingClientRect();
                const place = [x + width / 2, y + height / 2];
                if (before === `${{place}}`) return place;
                before = `${{place}}`;
                await new Promise(requestAnimationFrame);
            }}
        }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    async def resize(self, width: int, height: int, is_dark: bool = False) -> None:
        is_phone = width < 600
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                        mobile=is_phone)
        await self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])

    async def screenshot(self, path: Path) -> None:
        picture = await self.call("Page.captureScreenshot")
        path.write_bytes(base64.b64decode(picture["data"]))  # noqa: ASYNC240 (a test waits for it)

    async def _read(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                self._replies.pop(event["id"]).set_result(event)
            elif event["method"] == "Runtime.exceptionThrown":
                self.errors.append(str(event["params"]["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                self.errors.append(str(event["params"]["entry"]))


@contextmanager
def browser(profile: Path) -> Iterator[str]:
    """Starts a browser, whose files go to a folder of its own, and yields the address at which it takes commands."""
    assert CHROMIUM
    process = subprocess.Popen(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"],
        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{_port(profile / 'DevToolsActivePort')}"
    finally:
        process.terminate()
        process.wait()


def _port(file: Path) -> int:
    deadline = time.monotonic() + TIMEOUT
    while not (file.exists() and (lines := file.read_text().splitlines())):
        if time.monotonic() > deadline:
            raise RuntimeError("the browser has not come up")
        time.sleep(0.02)
    return int(lines[0])


@asynccontextmanager
async def new_tab(address: str) -> AsyncIterator[Tab]:
    """Yields an empty tab of the browser, which is closed afterwards."""
    async with aiohttp.ClientSession(address) as session:
        async with session.put("/json/new?about:blank") as response:
            target = await response.json()
        try:
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Tab(socket)
        finally:
            async with session.get(f"/json/close/{target['id']}") as response:
                assert response.status == 200
