"""The compiler of grammars, which runs llguidance off the event loop."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Collection
from concurrent.futures import Future
from pathlib import Path

import llguidance
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from penstock.router.grammar.form_matcher import FormGrammar, FormMatcher, failure, in_one_sentence
from penstock.router.grammar.gbnf import to_lark
from penstock.router.grammar.matcher import Grammar, GrammarError
from penstock.router.grammar.schema import prepare
from penstock.router.grammar.spec import GrammarSpec, ThinkingRule, ThinkingSpec
from penstock.router.grammar.thinking import ThinkingGrammar, Words
from penstock.router.grammar.vocabulary import load
from penstock.system.daemon_threads import DaemonThreads

MAX_SOURCE = 65_536
"""The most characters of a grammar. The slowest grammar of this length takes about half a second to compile."""
_PATIENCE = 10.0
"""The seconds after which a grammar that is still not compiled is refused, for cases that the limits do not foresee."""

_WORDS = {
    "oneOf": "`oneOf` is supported only where its schemas clearly exclude each other: ",
    "Pointer": "`$ref`: ", "Resource": "`$ref`: ", "circular": "`$ref`: ",
    "regex parse error": "`pattern`: ", "lookarounds": "`pattern`: ", "invalid regex": "`pattern`: ",
    "Invalid type": "`type`: ", "patternProperty": "`patternProperties`: ",
    "Unable to determine if regex is empty": "`pattern`: ",
    "min/maxProperties": "`minProperties` and `maxProperties`: "}
"""The keywords to put before those of llguidance's messages that do not name any, by how the messages begin."""

_FREE_TOKENS = '\n%llguidance {"no_forcing": true}\n'
"""Allows any tokens that spell the text. Otherwise llguidance works out all the text that must follow, to split it as
the tokenizer would, which never ends for `a{1000000000}`."""


class GrammarCompiler:
    """Compiles grammars in threads of its own and keeps those used last; equal specs are compiled once."""

    def __init__(
        self, tokenizer_json: Path, vocab_size: int, eos_token_ids: Collection[int], *,
        max_cached: int = 64, num_workers: int = 2,
    ) -> None:
        """Starts to read the tokenizer in the background; if it can't be used, `compile` says so.

        `vocab_size` is the model's, which may exceed the tokenizer's.
        """
        self._max_cached = max_cached
        self._threads = DaemonThreads(num_workers, "grammar")
        self._tokenizer = self._threads.submit(_load, tokenizer_json, vocab_size, eos_token_ids)
        self._grammars: OrderedDict[GrammarSpec, Future[Grammar]] = OrderedDict()

    async def compile(self, spec: GrammarSpec) -> Grammar:
        """Returns the compiled grammar. Raises GrammarError if the source is no grammar or exceeds a limit."""
        if isinstance(spec, ThinkingSpec):
            behind = None if spec.kind == "any" else await self.compile(GrammarSpec(spec.kind, spec.source))
            return await asyncio.wrap_future(self._threads.submit(self._begin, spec.thinking, behind))
        _check_length(spec)
        compiling = self._grammars.get(spec)
        if compiling is None:
            compiling = self._grammars[spec] = self._threads.submit(self._compile, spec)
            if len(self._grammars) > self._max_cached:
                self._grammars.popitem(last=False)
        self._grammars.move_to_end(spec)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(compiling)), _PATIENCE)
        except TimeoutError:
            raise GrammarError(f"it takes more than {_PATIENCE:.0f} seconds to compile") from None
        except Exception:  # not only GrammarError: what failed for another reason may succeed the next time
            if self._grammars.get(spec) is compiling:
                del self._grammars[spec]
            raise

    async def warm(self) -> None:
        """Waits until the tokenizer is read, which keeps Python's lock for a fraction of a second: were answers under
        way, they would stand still. Does not raise if it can't be used."""
        await asyncio.gather(asyncio.wrap_future(self._tokenizer), return_exceptions=True)

    def close(self) -> None:
        """Stops the threads without waiting for what they compile."""
        self._threads.close()

    def _compile(self, spec: GrammarSpec) -> Grammar:
        """Compiles a grammar, in a thread, and computes its first mask once for all answers."""
        tokenizer, words = self._tokenizer.result()
        matcher = LLMatcher(tokenizer, _lark(spec), log_level=0, limits=_limits())
        if matcher.is_error():
            raise _reason(failure(matcher), spec.kind)
        if not matcher.is_stopped():
            matcher.compute_bitmask()
        if matcher.is_error():
            raise GrammarError("no answer can satisfy it")
        if matcher.is_stopped():
            raise GrammarError("it accepts nothing but the empty answer")
        return FormGrammar(FormMatcher(matcher, words.num_bytes, words.tokens))

    def _begin(self, rule: ThinkingRule, behind: Grammar | None) -> Grammar:
        """Returns the grammar of an answer that may think first, in a thread: it looks at all tokens."""
        _, words = self._tokenizer.result()
        return ThinkingGrammar(rule, behind, words)


def _load(tokenizer_json: Path, vocab_size: int, eos_token_ids: Collection[int]) -> tuple[LLTokenizer, Words]:
    try:
        tokenizer, tokens = load(tokenizer_json, vocab_size, eos_token_ids)
        return tokenizer, Words(tokens, (vocab_size + 31) // 32 * 4, eos_token_ids)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise GrammarError(f"this model's tokenizer can't be used for grammars: {error}") from error


def _limits() -> LLParserLimits:
    """Returns llguidance's limits, with less fuel and fewer states, each of which takes 2 kB in each answer."""
    return LLParserLimits(initial_lexer_fuel=400_000, max_lexer_states=50_000, verbose_errors=False)


def _lark(spec: GrammarSpec) -> str:
    """Returns the grammar in llguidance's notation, which can express the other kinds too."""
    match spec.kind:
        case "lark":
            source = spec.source
        case "gbnf":
            source = to_lark(spec.source)
        case _:
            source = f"start: {expression(spec)}"
    return LLMatcher.grammar_from_lark(source + _FREE_TOKENS)


def _check_length(spec: GrammarSpec) -> None:
    if len(spec.source) > MAX_SOURCE:
        raise GrammarError(f"it must have at most {MAX_SOURCE} characters. Given: {len(spec.source)}")


def expression(spec: GrammarSpec) -> str:
    """Returns the grammar as the right side of a rule; GrammarError if it is too long, or its schema is not read."""
    _check_length(spec)
    match spec.kind:
        case "any":
            return "/(?s:.*)/"
        case "json":
            return f"%json {prepare(spec.source)}"
        case "regex":
            return f"/{llguidance.regex_to_lark(spec.source, 'dw')}/"
        case "lark":
            return f"%lark {{\n{spec.source}\n}}"
        case "gbnf":
            return f"%lark {{\n{to_lark(spec.source)}\n}}"


def check_schema(prepared: str) -> None:
    """Raises GrammarError if a schema from `schema.prepare` can't be compiled. Takes milliseconds."""
    error = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(f"start: %json {prepared}"))
    if error:
        raise _reason(in_one_sentence(error), "json")


def check_expression(name: str, rules: str) -> None:
    """Raises GrammarError if rules in Lark's notation, of which `name` is the first, can't be compiled."""
    error = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(f"start: {name}\n{rules}"))
    if error:
        raise _reason(in_one_sentence(error), "lark")


def _reason(error: GrammarError, kind: str) -> GrammarError:
    """Returns the error in the words of what the client wrote, not of the notation that it was put into."""
    message = str(error)
    if kind not in ("lark", "gbnf"):
        message = re.sub(r"^(at )?\d+\(\d+\): (failed to compile JSON schema: )?", "", message)
    if kind == "json":
        message = next((words for start, words in _WORDS.items() if message.startswith(start)), "") + message
    return GrammarError(message)
