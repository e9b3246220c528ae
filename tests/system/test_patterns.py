"""Patterns of files, compared with Python's own, and those on which that one never ends."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.system.patterns import MAX_LENGTH, WHOLE, Pattern, PatternError

NAMES = ("lm_head", "model.embed_tokens", "model.layers.0.self_attn.q_proj",
         "model.layers.12.mlp.gate_proj", "model.layers.10.mlp.experts.3.up_proj",
         "language_model.model.layers.3.mlp.gate", "visual.merger", "a-b{2}", "")


def agrees(text: str, names: tuple[str, ...] = NAMES) -> bool:
    begins, whole = Pattern(text), Pattern(text, WHOLE)
    return all(begins.matches(name) == (re.match(text, name) is not None)
               and whole.matches(name) == (re.fullmatch(text, name) is not None) for name in names)


@pytest.mark.parametrize("text", [
    r".*lm_head", r"^(?!.*vision).*$", r"^(?!.*(?:self_attn|lm_head)$).*$", r"model\.layers\.(?!0\.).*",
    r"(?!(?:lm_head|visual)$)(?:.*)", r"^(?!.*language_model\.model\.layers\.)", r".*mlp\.(gate|up)_proj$",
    r"^(?!.*\.mlp\.experts(?:\.|$)).*$", r".*\.(?:gate|up|down)_proj", r"model.layers.\d{1,2}.mlp", r"(?i)MODEL.*",
    r"a|(?!model)v.*|lm_head", r".*\b(?:gate|up)_proj\b", r"(?=model)(?!model\.l).*", r"[\w.-]+\Z", r"[^\W\d]+",
    r"(?P<name>m)odel", r"a\-b\{2}", r"a-b{2}", "", r"[]a]", r"[^]a]+", r"model[.]layers[.][0-3][.].*", r"(?s:.*)"])
def test_as_python_matches(text: str) -> None:
    assert agrees(text)


def _piece(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{}{}".format, inner, inner), st.builds("(?:{}|{})".format, inner, inner),
        st.builds("({}){}".format, inner, st.sampled_from(("*", "+", "?", "*?", "{0,2}"))))


PLAIN = st.recursive(
    st.sampled_from(("a", "b", ".", r"\.", "[ab]", "[^a]", r"\w", r"\d", "(?:)", "$", r"\b")), _piece, max_leaves=6)
AHEAD = st.builds("(?{}{})".format, st.sampled_from("=!"), PLAIN)


@given(st.sampled_from(("", "^", "a", "[ab].")), st.lists(AHEAD, max_size=2), PLAIN, PLAIN, st.text("ab.1", max_size=6))
@settings(max_examples=120, deadline=None)
def test_any_pattern_that_is_read_matches_as_pythons(
    head: str, looks: list[str], rest: str, other: str, name: str
) -> None:
    text = f"{head}{''.join(looks)}{rest}|{other}"
    try:
        is_equal = agrees(text, (name,))
    except PatternError as error:
        is_equal = "lookahead" in str(error) or "counts" in str(error)
    assert is_equal


@pytest.mark.parametrize(("text", "reason"), [
    (r"(a)\1", r"it has \\1, which is not read"), ("(?P<n>a)(?P=n)", r"begins with \(\?P="),
    ("a++", r"possessive \+\+"), (r".*(?<=d)$", r"a group that begins with \(\?<="), (r"(?>a)", r"\(\?>"),
    ("(?x) a", r"\(\?x\)"), ("(?#a)", r"\(\?#"), ("^((?!v).)*$", "a lookahead that is neither"),
    (".*(?!v)", "a lookahead that is neither"), (r"a(?!\bv)", "a lookahead"), ("[[a]", r"the set \[\[a\]"),
    ("[a&&b]", "the set"), ("[a--b]", "the set"), (r"\pN", r"it has \\p"), ("(", r"without a \)"),
    (")", r"without a \("), ("[", "without an end"), ("\\", "without an end"), ("*a", "repetition operator"),
    ("a{1000}", r"the count \{1000\}"), ("a{99999999999}", "the count"), ("(?:a{2}){3}", r"it counts \(\{3\}\)"),
    ("a" * (MAX_LENGTH + 1), "it has 65537 characters"), ("(" * 2000 + ")" * 2000, "nested parentheses"),
    pytest.param(r"(?:.|\w){90}" * 5000, "too large", marks=pytest.mark.slow), ("[z-a]", "range")])
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        Pattern(text)


@pytest.mark.parametrize("text", [
    r"(a+)+$", r"(?:a|a)*$", r"(.*a){20}$", r"^(?!(a|aa)+$).*b", r"(?:(?:a*)*)*$", r"([a-z.]+)+x", r"(a|a?)+$",
    r"a(?!(?:.*a)*b).*c", r"(?:.*,){11}P"])
def test_none_takes_long(text: str) -> None:
    begin = time.perf_counter()
    pattern = Pattern(text)
    for length in (100, 1000, 20_000):
        pattern.matches("a" * length + "!")
    assert time.perf_counter() - begin < 1
