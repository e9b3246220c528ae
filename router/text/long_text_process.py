"""`python -m penstock.router.text.long_text_process`: a process that has a child tokenise each long text, for
text/long_texts.py.

A thread that tokenises can't be ended, and what it took stays in the heap of its process. A child can, and it has its
own limits of memory and processor time. It is forked, so it has the tokenizer at once and shares its memory: this
process has a single thread, which forks and waits.

The socket at file descriptor 0 brings sockets, one for each text; when its other end is closed all ends. A text's
socket brings a JSON line, the question, and so many bytes of UTF-8. Back come frames, each a length of four bytes and
so many more: a JSON object, which may be `{"error": ...}`, those with the tokens, and one of no bytes. A child whose
client closes its end, or a direction of it, is killed; when a child has ended, its socket is closed.
"""

import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import tokenizers

from penstock.router.text import encoding
from penstock.router.text.token_size import most_bytes_of_a_token

SECONDS = 30
"""Seconds of processor time for one text; the kernel ends the child after it."""
LENGTH = struct.Struct("<I")
_IDS_PER_FRAME = 1 << 16


@dataclass(frozen=True, slots=True)
class Child:
    """A process that tokenises, its text's socket, and a pipe that ends when it does."""

    pid: int
    link: socket.socket
    life: int


class Forker:
    """Forks a child for each socket that comes."""

    def __init__(self, control: socket.socket, tokenizer: tokenizers.Tokenizer) -> None:
        self._control = control
        self._tokenizer = tokenizer
        self._children: list[Child] = []
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def run(self) -> None:
        """Returns, once the control socket has ended, with all children killed."""
        while True:
            ready = {fd for fd, _ in self._poll.poll()}
            for child in [*self._children]:
                if child.life in ready:
                    self._bury(child)
                elif child.link.fileno() in ready:
                    os.kill(child.pid, signal.SIGKILL)
                    self._poll.unregister(child.link)
            if self._control.fileno() in ready:
                _, fds, _, _ = socket.recv_fds(self._control, 1, 1)
                if not fds:
                    break
                self._fork(socket.socket(fileno=fds[0]))
        for child in self._children:
            os.kill(child.pid, signal.SIGKILL)

    def _fork(self, link: socket.socket) -> None:
        life, its_life = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(life)
            self._control.close()
            for child in self._children:
                child.link.close()
                os.close(child.life)
            _work(self._tokenizer, link)
        os.close(its_life)
        self._children.append(Child(pid, link, life))
        self._poll.register(life, 0)  # which tells its end alone
        self._poll.register(link, select.POLLRDHUP)

    def _bury(self, child: Child) -> None:
        self._poll.unregister(child.life)
        with suppress(KeyError):
            self._poll.unregister(child.link)
        os.close(child.life)
        os.waitpid(child.pid, 0)
        child.link.close()
        self._children.remove(child)


def _work(tokenizer: tokenizers.Tokenizer, link: socket.socket) -> None:
    """Answers the question on a socket and ends the process."""
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where memory runs out: that is told from here
        with link.makefile("rb") as questions:
            question: dict[str, Any] = json.loads(questions.readline())
            _limit(question)
            text = questions.read(question["bytes"]).decode("utf-8", "surrogatepass")
        for frame in _frames(tokenizer, text, question):
            link.sendall(LENGTH.pack(len(frame)) + frame)
        status = 0
    except OSError:  # nobody waits for the answer any more
        pass
    finally:
        os._exit(status)


def _limit(question: dict[str, Any]) -> None:
    """Bounds the memory and time of the process; where memory is short it is killed before all others."""
    os.nice(question["nice"])
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + question["memory"]
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _frames(tokenizer: tokenizers.Tokenizer, text: str, question: dict[str, Any]) -> Iterator[bytes]:
    try:
        match question["kind"]:
            case "encode":
                yield from _encode(
                    tokenizer, text, question["add_special_tokens"], question["truncate"], question["most"])
            case "split":
                yield from _split(tokenizer, text, question["add_special_tokens"])
            case "size":
                yield orjson.dumps({"number": most_bytes_of_a_token(tokenizer)})
    except encoding.TokenizerError as error:
        yield orjson.dumps({"error": str(error)})
    except MemoryError:
        yield orjson.dumps({"error": f"the text takes more than {question['memory'] >> 20} MiB"})
    yield b""


def _encode(
    tokenizer: tokenizers.Tokenizer, text: str, add_special_tokens: bool, truncate: int | None, most: int | None
) -> Iterator[bytes]:
    ids = encoding.encode(tokenizer, text, add_special_tokens, truncate)
    yield orjson.dumps({"number": len(ids)})
    if most is None or len(ids) <= most:
        for start in range(0, len(ids), _IDS_PER_FRAME):
            yield array("I", ids[start:start + _IDS_PER_FRAME]).tobytes()


def _split(tokenizer: tokenizers.Tokenizer, text: str, add_special_tokens: bool) -> Iterator[bytes]:
    parts = encoding.split(tokenizer, text, add_special_tokens)
    first = next(parts, [])
    yield orjson.dumps({})
    while first:
        yield orjson.dumps(first)
        first = next(parts, [])


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its socket
    control = socket.socket(fileno=0)
    with open(int(sys.argv[1]), "rb") as file:
        file.seek(0)
        tokenizer = encoding.parse(file.read())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    gc.freeze()
    Forker(control, tokenizer).run()


if __name__ == "__main__":
    main()
