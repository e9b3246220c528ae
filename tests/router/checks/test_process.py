"""The checks themselves, as their process runs them."""

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from penstock.router.checks.config import ChecksFile
from penstock.router.checks.process import Checks
from penstock.system.arguments import InvalidArgument

FACTS: dict[str, Any] = {"prompt": "a", "finish_reason": "length"}
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


def read(tmp_path: Path, *checks: dict[str, Any], **more: Any) -> ChecksFile:
    file = tmp_path / "checks.yaml"
    file.write_text(yaml.safe_dump({"checks": [{"name": "it", **check} for check in checks], **more}))
    return ChecksFile.read(file)


def finding(tmp_path: Path, text: str, **check: Any) -> str | None:
    found: str | None = Checks(read(tmp_path, check).told(tmp_path)).look(text, FACTS).get("finding")
    return found


@pytest.mark.parametrize(("check", "text", "said"), [
    ({"kind": "regex", "must_match": ["^Hel+o"]}, "Hello, you", None),
    ({"kind": "regex", "must_match": ["^Hel+o"]}, "Oh, Hello", "it must match ^Hel+o"),
    ({"kind": "regex", "must_not_match": [r"\d{4}"]}, "call 1234", r"it must not match \d{4}"),
    ({"kind": "regex", "must_not_match": [r"\d{4}"]}, "call 123", None),
    ({"kind": "words", "forbidden": ["bad", "very bad idea"]}, "Badly made", None),
    ({"kind": "words", "forbidden": ["bad", "very bad idea"]}, "That is BAD.", "it must not have `BAD`"),
    ({"kind": "words", "forbidden": ["(x)"]}, "a (x) b", "it must not have `(x)`"),
    ({"kind": "words", "required": ["sources:"]}, "none", "it must have `sources:`"),
    ({"kind": "words", "required": ["sources"]}, "Sources: none", None),
    ({"kind": "json_schema", "schema": SCHEMA}, '{"age": 5}', None),
    ({"kind": "json_schema", "schema": SCHEMA}, '{"age": "x"}', "$.age: 'x' is not of type 'integer'"),
    ({"kind": "json_schema", "schema": SCHEMA}, "none", "it must be JSON: Expecting value: line 1 column 1 (char 0)"),
    ({"kind": "json_schema", "schema": SCHEMA, "behind": "</think>"}, 'So?</think>\n{"age": 5}', None),
    ({"kind": "regex", "must_not_match": ["x"], "behind": "</think>"}, "x</think>y</think>z", None)])
def test_findings(tmp_path: Path, check: dict[str, Any], text: str, said: str | None) -> None:
    assert finding(tmp_path, text, **check) == said


def test_words_and_schemas_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("bad\n\n  worse  \n")
    (tmp_path / "schema.json").write_text('{"type": "array"}')
    assert finding(tmp_path, "it is worse", kind="words", file="words.txt") == "it must not have `worse`"
    assert finding(tmp_path, "{}", kind="json_schema", file="schema.json") == "$: {} is not of type 'array'"


def test_the_first_finding_counts(tmp_path: Path) -> None:
    checks = Checks(read(tmp_path, {"kind": "regex", "must_match": ["a"]},
                         {"name": "two", "kind": "regex", "must_match": ["b"]}).told(tmp_path))
    assert [checks.look(text, FACTS).get("check") for text in ("ab", "a", "")] == [None, "two", "it"]


def test_an_own_function(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("LIMIT = 5\n")
    (tmp_path / "own.py").write_text(
        "from helper import LIMIT\n\n\ndef check(text, facts):\n    if facts['prompt'] == text:\n        return 5\n"
        "    return f'longer than {LIMIT}' if len(text) > LIMIT else None\n")
    assert finding(tmp_path, "short", kind="python", file="own.py") is None
    assert finding(tmp_path, "longer", kind="python", file="own.py") == "longer than 5"
    found = Checks(read(tmp_path, {"kind": "python", "file": "own.py"}).told(tmp_path)).look("a", FACTS)
    assert found == {"check": "it", "is_broken": True, "finding": "TypeError: it must return None or a text, and has "
                                                                  "returned a int"}


@pytest.mark.parametrize(("check", "sentence"), [
    ({"kind": "regex", "must_match": ["("]}, r"^`it`: .*unterminated subpattern"),
    ({"kind": "json_schema", "schema": {"type": "no such"}}, r"^`it`: SchemaError: 'no such' is not valid"),
    ({"kind": "python", "file": "absent.py"}, r"`output_checks`: `file` of `it` can't be read: .*No such file")])
def test_a_check_that_can_not_be_used_is_told(tmp_path: Path, check: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, InvalidArgument), match=sentence):
        Checks(read(tmp_path, check).told(tmp_path))


@pytest.mark.parametrize(("content", "sentence"), [
    ("checks: []", "`checks`: list should have at least 1 item"),
    ("checks: [{name: a, kind: regex, must: [x]}]", "`checks.0.must`: extra inputs are not permitted"),
    ("checks: [{name: a b, kind: regex}]", "`checks.0.name`: string should match pattern"),
    ("checks: [{name: a, kind: other}]", "`checks.0`: input tag 'other' found"),
    ("checks: [{name: a, kind: python}]", "`checks.0.file`: field required"),
    ("checks: [{name: a, kind: regex}, {name: a, kind: words}]", "there are two checks `a`"),
    ("checks: [{name: a, kind: regex}]\nretries: 11", "`retries`: input should be less than or equal to 10"),
    ("checks: [{name: a, kind: regex}]\nmemory: x", "'x' is not a number of bytes"),
    ("checks: [", "is no YAML"), ("5", "")])
def test_a_file_that_is_wrong_is_told(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "checks.yaml"
    file.write_text(content)
    with pytest.raises(InvalidArgument, match=r"^`output_checks`: ") as caught:
        ChecksFile.read(file)
    assert sentence in str(caught.value)


def test_sizes_have_units(tmp_path: Path) -> None:
    assert read(tmp_path, {"kind": "regex"}, memory="1GiB").memory == 1 << 30
