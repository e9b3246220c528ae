"""Completions with a suffix: prompts by the markers of each family, and where answers to them end."""

import json
from pathlib import Path

import pytest

from penstock.router.generation.fill_in import FORMS, FillForm, Gap
from tests.router.api.conftest import Server, Start
from tests.router.api.openai.chats import refusal
from tests.router.api.openai.test_completions import chunks, complete, text_of
from tests.router.text.tokenizers_for_tests import DEMO

BEFORE, BEHIND = "def add(a, b):\n    return ", "\n\nprint(add(1, 2))\n"


def with_markers(folder: Path, form: FillForm, is_special: bool) -> tuple[Path, dict[str, int]]:
    """Writes a tokenizer with a form's tokens in the place of those that the last merges make; returns their ids."""
    content = json.loads(DEMO.read_text())
    added = [token["content"] for token in content["added_tokens"]]
    names = [name for name in (*form.markers, *form.ends) if name not in added]
    vocabulary, merges = content["model"]["vocab"], content["model"]["merges"]
    last = sorted(vocabulary, key=vocabulary.__getitem__)[-len(names):]
    ids = {name: vocabulary.pop(old) for name, old in zip(names, last, strict=True)}
    del merges[-len(names):]
    content["added_tokens"] += [
        {"id": token_id, "content": name, "special": is_special, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False} for name, token_id in ids.items()]
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(content))
    return file, ids


@pytest.mark.parametrize("is_special", [False, True])
@pytest.mark.parametrize("form", [FORMS[0], *(pytest.param(form, marks=pytest.mark.slow) for form in FORMS[1:])],
                         ids=lambda form: form.markers[0])
async def test_each_familys_form(start: Start, tmp_path: Path, form: FillForm, is_special: bool) -> None:
    """The markers are tokens of their own, and all that would end a file ends the answer, without being its text."""
    file, ids = with_markers(tmp_path, form, is_special)
    for end in [name for name in (*form.ends, *form.markers) if name in ids][:2]:
        server = await start(tokenizer_file=file, answer=f"a + b{end} more")
        texts = {Gap.BEFORE: BEFORE, Gap.BEHIND: BEHIND}
        expected: list[int] = []
        for part in form.parts:
            expected += [ids[part]] if isinstance(part, str) else await server.tokenizer.encode(texts[part])
        answer = await complete(server, prompt=BEFORE, suffix=BEHIND, return_token_ids=True)
        choice = answer["choices"][0]
        assert choice["prompt_token_ids"] == expected
        assert (choice["text"], choice["finish_reason"]) == ("a + b", "stop")
        assert text_of(await chunks(server, prompt=BEFORE, suffix=BEHIND)) == "a + b"
        plain = (await complete(server, prompt=BEFORE, suffix="", max_tokens=5, return_token_ids=True))["choices"][0]
        assert plain["prompt_token_ids"] == list(await server.tokenizer.encode(BEFORE))


@pytest.mark.parametrize(("fields", "told", "param", "code"), [
    ({"echo": True}, "`echo` is not supported with `suffix`: the answer stands between the two", "echo",
     "unsupported_parameter"),
    ({"prompt": [5, 6]}, "`suffix` needs `prompt` to be a text. Given: token ids", "suffix", "invalid_value"),
])
async def test_what_it_does_not_go_with(
    start: Start, tmp_path: Path, fields: dict[str, object], told: str, param: str, code: str
) -> None:
    file, _ = with_markers(tmp_path, FORMS[0], is_special=False)
    server = await start(tokenizer_file=file)
    response = await server.post("/v1/completions", {"prompt": "a", "suffix": "b", **fields})
    assert (response.status, await response.json()) == (400, refusal(told, param, code))


async def test_a_model_without_markers(server: Server) -> None:
    """Is refused in TGI's words."""
    response = await server.post("/v1/completions", {"prompt": "a", "suffix": "b"})
    assert (response.status, await response.json()) == (400, refusal(
        "Suffix is not supported and can be achieved by preprocessing the prompt.", "suffix", "unsupported_parameter"))
