"""Who gets the page, and that it needs nothing from elsewhere."""

import re
from base64 import b64encode
from hashlib import sha256

import pytest

from penstock.router.api.http.page import _PAGE

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(("accept", "is_page"), [
    (BROWSER, True), ("text/html", True), ("TEXT/HTML;charset=utf-8", True), ("text/html, application/json", True),
    ("application/json;q=0.5, text/html", True), (None, False), ("", False), ("*/*", False), ("text/*", False),
    ("application/json, text/html", False), ("application/json, text/html;q=0.9", False), ("text/html;q=0", False),
    ("text/html;q=nan", False), ("text/html;q=-1, */*", False), (",;,", False)])
async def test_who_gets_the_page(server, accept, is_page):
    response = await server.client.get("/", headers={} if accept is None else {"accept": accept})
    assert response.status == 200
    assert await response.read() == (_PAGE.read_bytes() if is_page else b"")


async def test_policy_allows_what_the_page_has_and_no_more(server):
    response = await server.client.get("/", headers={"accept": BROWSER})
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    rules = dict(rule.split(" ", 1) for rule in response.headers["content-security-policy"].split("; "))
    text = await response.text()
    for element in ("script", "style"):
        [content] = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        assert rules[f"{element}-src"] == f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert "unsafe" not in response.headers["content-security-policy"]


def test_page_is_small_and_alone():
    text = _PAGE.read_text()
    assert len(text.splitlines()) < 550
    assert set(re.findall(r"https?://[^'\"\s]*", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"\s(on\w+|style|src)=", text), "what the policy forbids"


def test_every_field_has_a_label():
    text = _PAGE.read_text()
    body = re.sub(r"<label.*?</label>", "", text[text.index("<body>"):text.index("<script>")], flags=re.DOTALL)
    alone = re.findall(r"<(?:input|select|textarea)[^>]*", body)
    assert [re.search(r'id="([^"]*)"', field)[1] for field in alone] == ["prompt"]
    assert 'for="prompt"' in text
