"""Swagger UI in a browser, before a real server with an API key: a user tries a route out, and is told if Swagger UI is
not there."""

import json
from pathlib import Path

import pytest

from tests.e2e.browser import CHROMIUM, Tab, new_tab
from tests.e2e.server import serve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed: `apt-get install chromium`")]

GENERATE = "#operations-Text_Generation_Inference-post_generate"
ANSWER = f"{GENERATE} .live-responses-table"
STATUS = f"document.querySelector('{ANSWER} tbody .response-col_status')?.firstChild?.textContent"
EXECUTE = f"{GENERATE} .execute"
BODY = f"{GENERATE} textarea.body-param__text"
"""Swagger UI fills it in once it has read the route's schema, and asks nothing before."""


async def execute(tab: Tab) -> str:
    await tab.until(f"document.querySelector('{EXECUTE}') && document.querySelector('{BODY}')?.value")
    await tab.evaluate(f"document.querySelector('{EXECUTE}').click()")  # the mouse misses it while the route unfolds
    status: str = await tab.until(STATUS)
    return status.strip()


async def test_a_route_is_tried_out(browser: str, tmp_path: Path) -> None:
    with serve(tmp_path, "--api-key", "secret") as server:
        async with new_tab(browser) as tab:
            await tab.resize(1280, 1000)
            await tab.open(f"{server.url}/docs/")
            await tab.until("document.querySelectorAll('.opblock').length > 10")
            assert "`" not in await tab.evaluate("document.body.innerText")
            await tab.click(f"{GENERATE} .opblock-summary-control")
            assert await execute(tab) == "401"
            await tab.click(".btn.authorize")
            await tab.until("document.querySelector('.auth-container input') && true")
            await tab.click(".auth-container input")
            await tab.type("secret")
            await tab.click(".auth-btn-wrapper .authorize")
            await tab.click(".auth-btn-wrapper .btn-done")
            await tab.click(f"{GENERATE} .btn-clear")
            assert await execute(tab) == "200"
            await tab.screenshot(tmp_path / "docs.png")
            text = await tab.evaluate(f"document.querySelector('{ANSWER} pre').textContent")
            assert json.loads(text)["generated_text"]
            assert [error for error in tab.errors if "401" not in error] == []
            await tab.call("Network.enable")
            await tab.call("Network.setBlockedURLs", urls=["*swagger-ui*"])
            await tab.open(f"{server.url}/docs/")
            assert "built without Swagger UI" in await tab.until("document.querySelector('#routes')?.innerText")
