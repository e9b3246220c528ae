"""Grammars compiled off the event loop, by llguidance."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import llguidance
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from penstock.router.grammar.matcher import Grammar, GrammarError, failure, in_one_sentence
from penstock.router.grammar.schema import prepare
from penstock.router.grammar.spec import GrammarSpec

MAX_SOURCE = 65_536
"""Characters. What compiles slowest of this length takes about half a second."""
_PATIENCE = 10.0
"""Seconds until a client is refused whose grammar is still not compiled, for what the limits do not foresee."""

_WORDS = {
    "oneOf": "`oneOf` is supported only where its schemas clearly exclude each other: ",
    "Pointer": "`$ref`: ", "Resource": "`$ref`: ", "circular": "`$ref`: ",
    "regex parse error": "`pattern`: ", "lookarounds": "`pattern`: ", "invalid regex": "`pattern`: ",
    "Invalid type": "`type`: ", "patternProperty": "`patternProperties`: ",
    "Unable to determine if regex is empty": "`pattern`: ",
    "min/maxProperties": "`minProperties` and `maxProperties`: "}
"""llguidance's messages that do not name the keyword, by their beginnings."""

_FREE_TOKENS = '\n%llguidance {"no_forcing": true}\n'
"""Any tokens that spell the text will do. Otherwise llguidance works out all the text that must follow, to split it as
the tokenizer would: of `a{1000000000}`, that never ends."""


class GrammarCompiler:
    """Compiles in threads of its own, and keeps what was used last; equal specs are compiled once."""

    def __init__(
        self, tokenizer_json: Path, vocab_size: int, eos_token_ids: Collection[int], *,
        max_cached: int = 64, num_workers: int = 2,
    ) -> None:
        """`vocab_size`: the model's, which may exceed the tokenizer's.

        Reads the tokenizer in the background; if it can't be used, `compile` says so.
        """
        self._num_bytes = (vocab_size + 31) // 32 * 4
        self._max_cached = max_cached
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="grammar")
        self._tokenizer = self._threads.submit(_load, tokenizer_json, vocab_size, sorted(eos_token_ids))
        self._grammars: OrderedDict[GrammarSpec, Future[Grammar]] = OrderedDict()

    async def compile(self, spec: GrammarSpec) -> Grammar:
        """GrammarError if it is no grammar, or more than a limit allows."""
        if len(spec.source) > MAX_SOURCE:
            raise GrammarError(f"it must have at most {MAX_SOURCE} characters. Given: {len(spec.source)}")
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

    def close(self) -> None:
        """Nothing new is compiled; what is being compiled is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _compile(self, spec: GrammarSpec) -> Grammar:
        """In a thread. The first mask is computed here, once for all answers."""
        matcher = LLMatcher(self._tokenizer.result(), _lark(spec), log_level=0, limits=_limits())
        if matcher.is_error():
            raise _reason(failure(matcher), spec.kind)
        if not matcher.is_stopped():
            matcher.compute_bitmask()
        if matcher.is_error():
            raise GrammarError("no answer can satisfy it")
        if matcher.is_stopped():
            raise GrammarError("it accepts nothing but the empty answer")
        return Grammar(matcher, self._num_bytes)


def _load(tokenizer_json: Path, vocab_size: int, eos_token_ids: list[int]) -> LLTokenizer:
    try:
        return LLTokenizer(tokenizer_json.read_text(encoding="utf-8"), n_vocab=vocab_size, eos_token=eos_token_ids)
    except (OSError, ValueError) as error:
        raise GrammarError(f"this model's tokenizer can't be used for grammars: {error}") from error


def _limits() -> LLParserLimits:
    """llguidance's defaults, but for fuel, of which these sources need less, and states of 2 kB in each answer."""
    return LLParserLimits(initial_lexer_fuel=400_000, max_lexer_states=50_000, verbose_errors=False)


def _lark(spec: GrammarSpec) -> str:
    """The grammar in llguidance's notation, which holds the other kinds too."""
    if spec.kind == "json":
        source = f"start: %json {prepare(spec.source)}"
    elif spec.kind == "regex":
        source = f"start: /{llguidance.regex_to_lark(spec.source, 'dw')}/"
    else:
        source = spec.source
    return LLMatcher.grammar_from_lark(source + _FREE_TOKENS)


def check_schema(prepared: str) -> None:
    """GrammarError if what `penstock.router.grammar.schema.prepare` made can't be compiled. Takes milliseconds."""
    error = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(f"start: %json {prepared}"))
    if error:
        raise _reason(in_one_sentence(error), "json")


def _reason(error: GrammarError, kind: str) -> GrammarError:
    """In the words of what the client wrote, not of the notation that it was put into."""
    message = str(error)
    if kind != "lark":
        message = re.sub(r"^(at )?\d+\(\d+\): (failed to compile JSON schema: )?", "", message)
    if kind == "json":
        message = next((words for start, words in _WORDS.items() if message.startswith(start)), "") + message
    return GrammarError(message)
