"""Who gets the page, and that it needs nothing from elsewhere."""

import re

import pytest

from penstock.router.api.http.page import _FILES, _TEXT

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(("accept", "is_page"), [
    (BROWSER, True), ("text/html", True), ("TEXT/HTML;charset=utf-8", True), ("text/html, application/json", True),
    ("application/json;q=0.5, text/html", True), (None, False), ("", False), ("*/*", False), ("text/*", False),
    ("application/json, text/html", False), ("application/json, text/html;q=0.9", False), ("text/html;q=0", False),
    ("text/html;q=nan", False), ("text/html;q=-1, */*", False), (",;,", False)])
async def test_who_gets_the_page(server, accept, is_page):
    response = await server.client.get("/", headers={} if accept is None else {"accept": accept})
    assert response.status == 200
    assert await response.read() == (_TEXT if is_page else b"")


async def test_policy_allows_what_the_page_has_and_no_more(server):
    response = await server.client.get("/", headers={"accept": BROWSER})
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    rules = dict(rule.split(" ", 1) for rule in response.headers["content-security-policy"].split("; "))
    assert {name: rules[name] for name in ("default-src", "script-src", "style-src", "connect-src")} == {
        "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'"}
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in response.headers["content-security-policy"]


async def test_files_of_the_page_are_served_and_no_others(server):
    for name in re.findall(r'(?:src|href)="(page/[^"]*)"', _TEXT.decode()) + [f"page/{name}" for name in _FILES]:
        response = await server.client.get(f"/{name}")
        assert response.status == 200, name
        assert response.content_type in ("text/css", "text/javascript", "application/javascript")
    for name in ("index.html", "..%2fdocs.html", "vendored", "missing.js"):
        assert (await server.client.get(f"/page/{name}")).status == 404


async def test_a_library_that_was_not_fetched_is_not_found(server, monkeypatch, tmp_path):
    monkeypatch.setitem(_FILES, "marked.js", tmp_path / "marked.esm.js")
    assert (await server.client.get("/page/marked.js")).status == 404


def test_page_is_small_and_alone():
    own = [path for path in _FILES.values() if "vendored" not in path.parts]
    text = _TEXT.decode() + "".join(path.read_text() for path in own)
    assert max(len(path.read_text().splitlines()) for path in own) < 200
    assert set(re.findall(r"https?://[^'\"\s]*", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"\s(on\w+|style)=", _TEXT.decode()), "what the policy forbids"
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text)


def test_every_field_has_a_label():
    text = _TEXT.decode()
    body = re.sub(r"<label.*?</label>", "", text[text.index("<body>"):], flags=re.DOTALL)
    alone = re.findall(r"<(?:input|select|textarea)[^>]*", body)
    assert [re.search(r'id="([^"]*)"', field)[1] for field in alone] == ["prompt"]
    assert 'for="prompt"' in text
