import asyncio
import gc
import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from penstock.router.grammar import compiler as compiler_module
from penstock.router.grammar.compiler import MAX_SOURCE
from penstock.router.grammar.matcher import GrammarError
from penstock.router.grammar.spec import GrammarSpec
from tests.router.grammar.grammar_driver import (
    EOS_ID,
    TOKENIZER,
    TOKENIZER_JSON,
    VOCAB_SIZE,
    GrammarCompiler,
    accepts,
    allows,
    make_compiler,
    push_text,
)

ADDRESS = {"type": "object", "properties": {"street": {"type": "string"}, "number": {"type": "integer"}},
           "required": ["street", "number"]}


def json_spec(schema: object) -> GrammarSpec:
    return GrammarSpec("json", json.dumps(schema))


async def test_kinds(compiler):
    grammar = await compiler.compile(json_spec(ADDRESS))
    assert accepts(grammar, '{"street":"Main","number":3}')
    assert not accepts(grammar, '{"street":"Main"}')
    assert not accepts(grammar, '{"street": "Main", "number": 3}')
    grammar = await compiler.compile(GrammarSpec("regex", r"\d{2}/[a-c]+"))
    assert accepts(grammar, "12/ab")
    assert not accepts(grammar, "12/abd")
    grammar = await compiler.compile(GrammarSpec("lark", 'start: WORD ("," WORD)* "."\nWORD: /[a-z]+/'))
    assert accepts(grammar, "one,two.")
    assert not accepts(grammar, "one two.")


async def test_mask_covers_the_vocabulary(compiler):
    matcher = (await compiler.compile(GrammarSpec("regex", "a+"))).start()
    mask = matcher.mask()
    assert len(mask) == (VOCAB_SIZE + 31) // 32 * 4
    allowed = [token_id for token_id in range(8 * len(mask)) if allows(mask, token_id)]
    assert allowed
    assert {TOKENIZER.decode([token_id]).strip("a") for token_id in allowed} == {""}


async def test_the_end_is_allowed_where_the_answer_may_end(compiler):
    matcher = (await compiler.compile(GrammarSpec("regex", "ab?"))).start()
    assert not allows(matcher.mask(), EOS_ID)
    assert push_text(matcher, "a")
    assert allows(matcher.mask(), EOS_ID)
    assert not matcher.is_complete
    assert push_text(matcher, "b")
    assert matcher.is_complete


async def test_matchers_are_apart(compiler):
    grammar = await compiler.compile(GrammarSpec("regex", "ab|ac"))
    first, second = grammar.start(), grammar.start()
    assert push_text(first, "ab")
    assert not second.is_complete
    assert push_text(second, "a")
    assert push_text(second, "c")


async def test_a_token_that_was_not_allowed(compiler):
    matcher = (await compiler.compile(GrammarSpec("regex", "ab"))).start()
    with pytest.raises(GrammarError, match="doesn't satisfy the grammar"):
        matcher.push(TOKENIZER.encode("z").ids[0])
    assert not matcher.is_complete


async def test_equal_specs_are_compiled_once(compiler):
    specs = [json_spec({"type": "integer", "maximum": 12345}) for _ in range(5)]
    grammars = await asyncio.gather(*map(compiler.compile, specs))
    assert len(set(map(id, grammars))) == 1


async def test_one_who_leaves_does_not_take_the_grammar_along(compiler):
    spec = json_spec({"enum": [[number] for number in range(1400)]})
    leaver, other = asyncio.create_task(compiler.compile(spec)), asyncio.create_task(compiler.compile(spec))
    await asyncio.sleep(0)
    leaver.cancel()
    assert accepts(await other, "[17]")


async def test_the_oldest_is_forgotten():
    compiler = make_compiler(max_cached=2)
    specs = [GrammarSpec("regex", letter) for letter in "abc"]
    first = [await compiler.compile(spec) for spec in specs]
    assert await compiler.compile(specs[2]) is first[2]
    assert await compiler.compile(specs[1]) is first[1]
    assert await compiler.compile(specs[0]) is not first[0]
    compiler.close()


@pytest.mark.parametrize("error", [GrammarError("too much"), MemoryError(), RuntimeError("a fault of the library")])
async def test_what_failed_is_compiled_anew_when_it_is_asked_for_again(monkeypatch, error):
    compiler, spec = make_compiler(), GrammarSpec("regex", "abc")
    with monkeypatch.context() as patch:
        patch.setattr(compiler_module, "_lark", Mock(side_effect=error))
        with pytest.raises(type(error)):
            await compiler.compile(spec)
    assert accepts(await compiler.compile(spec), "abc")
    compiler.close()


async def test_the_loop_goes_on_meanwhile(compiler):
    compiling = asyncio.create_task(compiler.compile(json_spec({"enum": [{"a": [number]} for number in range(1500)]})))
    turns = 0
    while not compiling.done():
        await asyncio.sleep(0)
        turns += 1
    await compiling
    assert turns > 10


async def test_a_tokenizer_that_cannot_be_used(tmp_path, caplog):
    tokenizer = json.loads(TOKENIZER_JSON.read_text())
    for name, change in [("decoder", {"decoder": {"type": "WordPiece"}}), ("none", {"decoder": None}),
                         ("ids", {"added_tokens": [{"id": "0", "content": "a", "special": True}]})]:
        (tmp_path / f"{name}.json").write_text(json.dumps(tokenizer | change))
    for path, eos_id, reason in [
            (tmp_path / "no.json", EOS_ID, "No such file"), (Path(__file__), EOS_ID, "can't be used for grammars"),
            (TOKENIZER_JSON, 100, r"the end tokens \[100\] are not among the model's 100 tokens"),
            (tmp_path / "decoder.json", EOS_ID, "none of ByteLevel, ByteFallback and Metaspace: WordPiece"),
            (tmp_path / "none.json", EOS_ID, "can't be used"), (tmp_path / "ids.json", EOS_ID, "can't be used")]:
        compiler = GrammarCompiler(path, 100, [eos_id])
        await compiler.warm()
        with pytest.raises(GrammarError, match=reason):
            await compiler.compile(GrammarSpec("regex", "a"))
        compiler.close()
        del compiler
    gc.collect()
    assert not caplog.records            # asyncio writes of errors that nobody has looked at


@pytest.mark.parametrize(("kind", "source", "reason"), [
    ("regex", "a(", "unclosed group"),
    ("regex", "a(?=b)", "look-around"),
    ("regex", "a" * (MAX_SOURCE + 1), f"at most {MAX_SOURCE} characters. Given: {MAX_SOURCE + 1}"),
    ("lark", "start: x", 'unknown name: "x"'),
    ("lark", "", "no start"),
    ("lark", 'start: start "a"', "no answer can satisfy it"),
    ("json", '{"$ref":"#"}', "no answer can satisfy it"),
    ("json", '{"type":"integer","minimum":5,"maximum":3}', "minimum"),
])
async def test_what_is_no_grammar(compiler, kind, source, reason):
    with pytest.raises(GrammarError) as refusal:
        await compiler.compile(GrammarSpec(kind, source))
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)


def many_added(folder: Path, first_id: int, number: int) -> Path:
    """The demo model's tokenizer with more added tokens, every other one special."""
    tokenizer = json.loads(TOKENIZER_JSON.read_text())
    tokenizer["added_tokens"] += [
        {"id": first_id + index, "content": f"added{index}!", "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": bool(index % 2)} for index in range(number)]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder / "tokenizer.json"


async def test_added_tokens_that_the_model_has_not_are_no_obstacle(tmp_path):
    compiler = GrammarCompiler(many_added(tmp_path, 8192, 200_000), 8192, [EOS_ID])
    assert accepts(await compiler.compile(json_spec(ADDRESS)), '{"street":"Main","number":3}')
    compiler.close()


async def test_grammars_use_all_of_many_added_tokens(tmp_path):
    number = 40_963
    compiler = GrammarCompiler(many_added(tmp_path, 8192, number), 8192 + number, [EOS_ID, 8191 + number])
    mask = (await compiler.compile(GrammarSpec("regex", "added409[0-9]+!"))).start().mask()
    compiler.close()
    allowed = [token_id for token_id in range(8192, 8192 + number) if allows(mask, token_id)]
    assert allowed == [8192 + index for index in (*range(4090, 4100, 2), *range(40900, 40963, 2))], "others are special"
