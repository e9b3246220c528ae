"""Answers the lines of a batch, many at once, and writes the answers."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from hashlib import blake2b
from typing import BinaryIO, NoReturn

import orjson
from tqdm import tqdm

from penstock.launcher.config import LauncherConfig
from penstock.launcher.supervisor import background
from penstock.offline.batch_files import AnswerFile, NotAnswers, key_of, parts_of
from penstock.offline.session import Session
from penstock.offline.window import ask_each
from penstock.router.batches import answers
from penstock.router.batches.answers import LineAnswer, answer_patiently, id_of, no_answer
from penstock.router.batches.lines import Line, LineError, RawLine, raw_lines, read_line, repeated
from penstock.router.errors import GenerationError
from penstock.router.generation.identity import MAX_KEY
from penstock.router.generation.services import Services
from penstock.router.limits import Limits

OTHER_REQUEST = ("line {number}: there is an answer of this `custom_id` already, to another request or of another "
                 "model: name another file for the answers")
QUIET_SECONDS = 30.0
"""How often progress is told where nobody looks at a terminal."""


class Batch:
    """The lines of a batch, and where their answers go: as they end, or `in_order`. The ids of answers are made of the
    lines and `model`, which names the model and its form."""

    def __init__(self, source: BinaryIO, answers: AnswerFile, in_order: bool, model: str) -> None:
        self._model = model.encode()
        self._source = source
        self._answers = answers
        self._in_order = in_order
        self._held: dict[int, bytes] = {}
        self._next = 0
        self.num_answered = self.num_failed = self.num_known = 0
        self.num_tokens = 0

    async def lines(self, limits: Limits) -> AsyncIterator[tuple[Line | bytes, str]]:
        """Yields the requests that have no answer yet, and in place of a line that is none the line of its error; each
        with the digest of which its answer's id is made. Raises NotAnswers if there is an answer of a line's
        `custom_id` to another request, or of another model."""
        firsts: dict[str, int] = {}
        async for raw in raw_lines(parts_of(self._source), limits.payload_limit):
            line, fault = None, None
            try:
                line = read_line(raw, limits)
            except LineError as error:
                fault = error
            custom_id = _custom_id(raw) if line is None else line.custom_id
            if custom_id is not None and firsts.setdefault(custom_id, raw.number) != raw.number:
                fault, custom_id = repeated(raw.number, custom_id, firsts[custom_id]), None
            digest = blake2b(raw.content.strip(), digest_size=16, key=blake2b(self._model).digest()).hexdigest()
            known = self._answers.known.get(key_of(custom_id, None if fault is None else str(fault)))
            if known is not None:
                if custom_id is not None and known != id_of(digest):
                    raise NotAnswers(OTHER_REQUEST.format(number=raw.number))
                self.num_known += 1
            elif fault is not None:
                yield no_answer(custom_id, fault.code, str(fault), digest), digest
            elif line is not None:
                yield line, digest

    async def num_lines(self, limits: Limits) -> int:
        """Counts the lines, after all have been held against the answers that are there, as `lines` does."""
        if self._answers.known:
            async for _ in self.lines(limits):
                pass
            self.num_known = 0
        return sum([1 async for _ in raw_lines(parts_of(self._source), limits.payload_limit)])

    def put(self, number: int, found: LineAnswer | bytes, digest: str) -> None:
        """Writes the answer to the line that was yielded as this one, or keeps it until those before it have come."""
        is_failure = isinstance(found, bytes) or found.has_failed
        self.num_failed += is_failure
        self.num_answered += not is_failure
        if isinstance(found, LineAnswer):
            self.num_tokens += (found.body.get("usage") or {}).get("completion_tokens", 0)
            found = found.to_json(digest)
        if not self._in_order:
            self._answers.append(found)
            return
        self._held[number] = found
        while (ready := self._held.pop(self._next, None)) is not None:
            self._answers.append(ready)
            self._next += 1


async def run(config: LauncherConfig, batch: Batch) -> None:
    """Answers all lines with the model of the settings. Raises NoShards and other errors of a model that can't be
    started, and OSError if answers can't be written."""
    session = Session(config)
    async with background(session.live()):
        services = Services(service := await asyncio.wrap_future(session.opened))
        limits = service.limits
        bar: tqdm[NoReturn] = tqdm(total=await batch.num_lines(limits), unit="line",
                                   mininterval=0.1 if sys.stderr.isatty() else QUIET_SECONDS)
        with bar:
            async def numbered() -> AsyncIterator[tuple[int, Line | bytes, str]]:
                number = 0
                async for line, digest in batch.lines(limits):
                    yield number, line, digest
                    number += 1

            async def ask(asked: tuple[int, Line | bytes, str]) -> None:
                number, line, digest = asked
                found = line if isinstance(line, bytes) else await _answered(session, services, line)
                batch.put(number, found, digest)
                _show(bar, batch)

            await ask_each(numbered(), service.engine.num_slots, ask)
            _show(bar, batch)


async def _answered(session: Session, services: Services, line: Line) -> LineAnswer:
    """Returns the answer to a line, also if the shards are away for long. Raises the error of those that will not
    return."""
    def check() -> None:
        if session.failure is not None:
            raise session.failure

    while True:
        found = await answer_patiently(services, line, check)
        if found.status != GenerationError.status or services.first.engine.is_healthy:
            return found  # and not the failure of an engine, which has failed all requests
        check()
        await asyncio.sleep(answers.RETRY_SECONDS)  # a refusal that remembers the failure takes no time


def _show(bar: "tqdm[NoReturn]", batch: Batch) -> None:
    bar.initial = batch.num_known
    seconds = bar.format_dict["elapsed"] or 1.0
    bar.set_postfix_str(f"{batch.num_tokens / seconds:.0f} tokens/s, {batch.num_failed} errors", refresh=False)
    bar.update(batch.num_known + batch.num_answered + batch.num_failed - bar.n)


def _custom_id(raw: RawLine) -> str | None:
    """Returns the id of a line that is no request, if it has one."""
    with suppress(ValueError, TypeError, KeyError):
        custom_id = orjson.loads(raw.content)["custom_id"]
        return custom_id if isinstance(custom_id, str) and 0 < len(custom_id) <= MAX_KEY else None
    return None
