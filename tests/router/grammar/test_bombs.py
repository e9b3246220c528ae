"""Grammars made to take forever: refused, or compiled and followed; either way with little time and memory.

A process of its own does it, so that its processor time is the grammar's alone, whatever else the machine does, and so
that it can be ended when it uses too much.
"""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import pytest

from penstock.router.grammar.compiler import MAX_SOURCE
from tests.paths import ROOT

MAX_SECONDS = 3.0
"""Of processor time for one grammar; the worst takes 0.4."""
MAX_BYTES = 256 * 2**20
"""By which one grammar may make the process grow; the worst takes 55 MiB."""
ENDLESS = """print('"ready"', flush=True)
while True:
    pass"""
"""A program that never is done with its first grammar."""


def chain(keyword: str) -> dict[str, object]:
    """A schema that doubles at each of its 30 references."""
    definitions: dict[str, object] = {"d30": {"type": "string", "pattern": "^a+$"}}
    for number in range(30):
        definitions[f"d{number}"] = {keyword: [{"$ref": f"#/$defs/d{number + 1}"}] * 2}
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


def product() -> dict[str, object]:
    """6¹² alternatives, multiplied out."""
    cells = [[f"p{row}_{column}" for column in range(6)] for row in range(12)]
    return {"allOf": [{"anyOf": [{"properties": {name: {"const": 1}}, "required": [name]} for name in names]}
                      for names in cells]}


def filled(start: str, unit: str, end: str) -> str:
    """A source of the greatest length; `@` in its units is their number."""
    units, length = [], len(start) + len(end)
    while length + len(unit) + 8 < MAX_SOURCE:
        units.append(unit.replace("@", str(len(units))))
        length += len(units[-1]) + 1
    return start + ",".join(units) + end


SCHEMAS = {
    "nested arrays": "[" * 10_000 + "]" * 10_000,
    "nested items": '{"items":' * 7_000 + "{}" + "}" * 6_000,
    "nested properties": '{"properties":{"a":' * 60 + "{}" + "}}" * 60,
    "nested any of": '{"anyOf":[' * 49 + "{}" + "]}" * 49,
    "reference to itself": {"$ref": "#"},
    "references in a ring": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "ring with more": {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}}, "$ref": "#/$defs/a"},
    "long chain": {"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1400)} | {"d1400": {}},
                   "$ref": "#/$defs/d0"},
    "any of, doubled": chain("anyOf"),
    "all of, doubled": chain("allOf"),
    "one of, doubled": chain("oneOf"),
    "product": product(),
    "patterns that meet": {"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{n}}}c"} for n in range(5, 30)]},
    "nearly too many that meet": {"allOf": [{"pattern": f"(a|b)*a(a|b){{{n}}}c"} for n in range(5, 15)]},
    "patterns of names": {"patternProperties": {f"^p{n}.*a{{1,100}}$": {} for n in range(100)}},
    "many patterns of names": filled('{"patternProperties":{', '"^p@$":{}', "}}"),
    "many items": {"type": "array", "items": {"type": "integer"}, "minItems": 10**9},
    "many equal items": {"type": "array", "items": {"const": "aaaa"}, "minItems": 10**9},
    "long string": {"type": "string", "minLength": 10**9},
    "long string of one letter": {"type": "string", "pattern": "^a+$", "minLength": 10**9},
    "long pattern": {"type": "string", "pattern": "^a{1000000000}$"},
    "pattern and length": {"type": "string", "pattern": "(a|b)*a(a|b){50}c", "minLength": 999, "maxLength": 1000},
    "many properties": {"type": "object", "minProperties": 10**9},
    "multiple": {"type": "integer", "multipleOf": 9973},
    "large numbers": '{"type":"integer","minimum":-1e300,"maximum":' + "9" * 300 + "}",
    "a large enum": filled('{"enum":[', '"v@"', "]}"),
    "a large enum of arrays": filled('{"enum":[', "[@]", "]}"),
    "many alternatives": filled('{"anyOf":[', '{"properties":{"a":{"const":@}},"additionalProperties":false}', "]}"),
    "many properties named": filled('{"properties":{', '"@":{}', "}}"),
    "all of them": filled('{"allOf":[', '{"properties":{"a@":{"const":1}}}', "]}"),
    "one of them": filled('{"oneOf":[', '{"properties":{"a":{"const":@}},"required":["a"]}', "]}"),
    "many lengths": filled('{"prefixItems":[', '{"type":"string","maxLength":1@}', "]}"),
    "many ranges": filled('{"prefixItems":[', '{"type":"integer","minimum":-@77}', "]}"),
    "many patterns": filled('{"prefixItems":[', '{"pattern":"a{1,1@}b"}', "]}"),
    "many formats": filled('{"prefixItems":[', '{"type":"string","format":"uri"}', "]}"),
}
REGEXES = {
    "repeated repetition": "(a{1,1000}){1,1000}",
    "repeated four times": "(((a{1,1000}){1,1000}){1,1000}){1,1000}",
    "stars in stars": "((a*)*)*b",
    "alternatives that overlap": "(a|aa)+b",
    "many states": "(a|b)*a(a|b){200}c",
    "no end": "a{1000000000}",
    "no end after a choice": "b?(((a{1000}){1000}){1000}){1000}",
    "letters of all alphabets": r"(\p{L}{1,1000}\w){1,100}",
    "groups": "(" * 20_000 + "a" + ")" * 20_000,
    "spread": "(.*a.{1,100}b){1,100}",
    "many words": filled("", "v@", "").replace(",", "|"),
}
LARKS = {
    "itself twice": 'start: start start | "a"',
    "itself alone": 'start: start "a" | start',
    "nothing often": 'start: x x x x x x\nx: x x | "a" | ',
    "repeated rules": 'start: (("a"{1,1000}){1,1000}){1,1000}',
    "groups": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000,
    "doubled terminals": "start: A0\n" + "\n".join(f"A{n}: A{n + 1} A{n + 1}" for n in range(60)) + '\nA60: "a"',
    "a chain of rules": "start: A0\n" + "\n".join(f"A{n}: A{n + 1}" for n in range(598)) + '\nA598: "a"',
    "doubled rules": "start: a0\n" + "\n".join(f"a{n}: a{n + 1} a{n + 1}" for n in range(60)) + '\na60: "a"',
    "a complement": "start: A\nA: ~(/(a|b)*a(a|b){20}c/) & /(?s:.*)/",
    "an intersection": "start: A\nA: " + " & ".join(f"/(a|b)*a(a|b){{{n}}}c/" for n in range(5, 14)),
    "all substrings": 'start: %regex {"substring_chars":"' + "abc" * 20_000 + '"}',
}
GBNFS = {
    "a chain of rules":
        "root ::= r0\n" + "\n".join(f"r{n} ::= {'[a] ' * 12}r{n + 1}" for n in range(598)) + '\nr598 ::= "a"',
    "groups": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000,
    "repeated rules": 'root ::= (("a"{1,1000}){1,1000}){1,1000}',
}
BOMBS = [*(("json", name, source) for name, source in SCHEMAS.items()),
         *(("regex", name, source) for name, source in REGEXES.items()),
         *(("lark", name, source) for name, source in LARKS.items()),
         *(("gbnf", name, source) for name, source in GBNFS.items())]


class Worker:
    """The process that compiles and follows grammars, one after the other; `program` is what Python runs in it."""

    def __init__(self, program: Sequence[str] = ("-m", "tests.router.grammar.bomb_worker")) -> None:
        self._process = subprocess.Popen([sys.executable, *program], cwd=ROOT, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        self._usage = psutil.Process(self._process.pid)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._next(60.0) == "ready"

    def follow(self, kind: str, text: str, max_seconds: float = MAX_SECONDS) -> dict[str, Any]:
        """Returns what the process says of a grammar; AssertionError, and its end, if that takes too much of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([kind, text]) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = self._next(max_seconds)
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._reader.join()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def _next(self, max_seconds: float) -> Any:
        before = self._seconds()
        while True:
            try:
                line = self._lines.get(timeout=0.05)
            except queue.Empty:
                used = self._seconds() - before
                if used < max_seconds:
                    continue
                self.close()
                pytest.fail(f"it is not done after {used:.1f} s of processor time")
            assert line, "the process ended"
            return json.loads(line)

    def _seconds(self) -> float:
        times = self._usage.cpu_times()
        return float(times.user + times.system)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


@pytest.fixture(scope="module")
def workers() -> Iterator[list[Worker]]:
    """The last is the one that runs."""
    started = [Worker()]
    yield started
    for worker in started:
        worker.close()


@pytest.fixture
def worker(workers: list[Worker]) -> Worker:
    if not workers[-1].is_running:
        workers.append(Worker())
    return workers[-1]


@pytest.mark.parametrize(("kind", "source"), [(kind, source) for kind, _, source in BOMBS],
                         ids=[f"{kind}-{name}" for kind, name, _ in BOMBS])
def test_a_bomb_takes_little_time_and_memory(worker: Worker, kind: str, source: str | dict[str, object]) -> None:
    found = worker.follow(kind, source if isinstance(source, str) else json.dumps(source))
    print(f"{found['seconds']:.2f} s of processor time, {found['bytes'] / 2**20:.0f} MiB more: {found['outcome']}")
    assert "seconds to compile" not in found["outcome"], "given up, not refused"
    assert found["seconds"] < MAX_SECONDS
    assert found["bytes"] < MAX_BYTES


def test_a_grammar_that_takes_too_long_is_told() -> None:
    worker = Worker(["-c", ENDLESS])
    with pytest.raises(pytest.fail.Exception, match=r"not done after .* s of processor time"):
        worker.follow("regex", "a", max_seconds=0.2)
    assert not worker.is_running
