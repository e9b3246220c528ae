"""The file of a batch's answers, as killed runs leave it, and files that are none."""

import os
import re
import resource
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.offline import batch_files
from penstock.offline.batch_files import AnswerFile, NotAnswers, downloaded, key_of, upload
from penstock.router.batches.answers import LineAnswer, no_answer

WHOLE = LineAnswer("a", 200, "req", {"choices": []}).to_json()
UNREAD = no_answer(None, "invalid_json_line", "line 4: it can't be read")
KEYS = {key_of("a", None), key_of(None, "line 4: it can't be read")}


@pytest.mark.parametrize("torn", [b"", b"{", WHOLE[:-1], WHOLE[:40]], ids=len)
def test_a_torn_line_is_cut_off_and_written_anew(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(WHOLE + UNREAD + torn)
    with AnswerFile.opened(str(path)) as answers:
        assert answers.known.keys() == KEYS
        assert path.read_bytes() == WHOLE + UNREAD
        answers.append(WHOLE)
        assert answers.rewound().read() == path.read_bytes() == WHOLE + UNREAD + WHOLE


@pytest.mark.parametrize("content", [
    b"my text\n", b"{}\n", WHOLE + b"[]\n", b'{"custom_id": "a"}\n', b"my text", WHOLE + b'{"custom_id": "a"}'],
    ids=len)
def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(content)
    with (pytest.raises(NotAnswers, match=rf"out.jsonl: line {len(content.splitlines())} is no answer of a batch"),
          AnswerFile.opened(str(path))):
        pass
    assert path.read_bytes() == content


def test_one_run_at_a_time_writes_a_file(tmp_path: Path) -> None:
    name = str(tmp_path / "out.jsonl")
    with (AnswerFile.opened(name), pytest.raises(NotAnswers, match="is written by another run"),
          AnswerFile.opened(name)):
        pass
    with AnswerFile.opened(name) as answers:
        assert not answers.known


def test_a_line_that_a_full_disk_has_cut_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with AnswerFile.opened(str(path)) as answers:
        answers.append(WHOLE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(WHOLE) + 5, hard))
        try:
            with pytest.raises(OSError, match=rf"^{path} can't be written: .*File too large"):
                answers.append(UNREAD)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        with pytest.raises(OSError, match="File too large"):
            answers.append(UNREAD)
    assert path.read_bytes() == WHOLE + UNREAD[:5]
    with AnswerFile.opened(str(path)) as answers:
        assert answers.known.keys() == {key_of("a", None)}
        answers.append(UNREAD)
    assert path.read_bytes() == WHOLE + UNREAD


def test_files_that_are_not_there() -> None:
    with pytest.raises(OSError, match="No such file"), downloaded("/nowhere/in.jsonl"):
        pass
    for url in ("http://127.0.0.1:9/in", "http://[::1/x"):
        with pytest.raises(OSError, match=rf"{re.escape(url)} can't be read"), downloaded(url):
            pass


def test_a_pipe_can_be_read_twice() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"line\n" * 3)
    os.close(writer)
    with downloaded(f"/dev/fd/{reader}") as file:
        assert [*file] == [b"line\n"] * 3
        file.seek(0)
        assert file.read() == b"line\n" * 3
    os.close(reader)


class Puts(BaseHTTPRequestHandler):
    """Answers each PUT with the next of the statuses, and notes its content and its path."""

    statuses: ClassVar[list[int]] = []
    taken: ClassVar[list[bytes]] = []
    paths: ClassVar[list[str]] = []

    def do_PUT(self) -> None:
        self.paths.append(self.path)
        self.taken.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(status := self.statuses[len(self.taken) - 1])
        if status < 400:
            self.send_header("location", "/there")
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(batch_files, "UPLOAD_PAUSES", (0.0, 0.0))
    Puts.taken.clear()
    Puts.paths.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Puts) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/out"
        finally:
            server.shutdown()
            thread.join()


def put(url: str, *statuses: int) -> None:
    Puts.statuses[:] = statuses
    with AnswerFile.opened(url) as answers:
        answers.append(WHOLE)
        answers.append(UNREAD)
        upload(answers, url)


def test_answers_are_put_again_if_the_server_is_out_of_order(puts: str) -> None:
    put(puts, 503, 429, 200)
    assert Puts.taken == [WHOLE + UNREAD] * 3


@pytest.mark.parametrize("status", [301, 307, 308])
def test_answers_are_put_where_the_server_refers_to(puts: str, status: int) -> None:
    put(puts, status, 200)
    assert Puts.taken == [WHOLE + UNREAD] * 2
    assert Puts.paths == ["/out", "/there"]


@pytest.mark.parametrize("statuses", [(503, 503, 503), (403,), (302,), (303,), (307,) * 6], ids=str)
def test_answers_that_cannot_be_put_are_kept(
    puts: str, statuses: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match=rf"/out can't be written: (.|\n)*{statuses[0]}") as found:
        put(puts, *statuses)
    assert len(Puts.taken) == len(statuses)
    [kept] = tmp_path.iterdir()
    assert f"with -o {kept} it goes on" in str(found.value)
    with AnswerFile.opened(str(kept)) as answers:
        assert answers.known.keys() == KEYS


def test_answers_are_kept_if_ctrl_c_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupted(answers: AnswerFile, url: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules[__name__], "upload", interrupted)
    with pytest.raises(KeyboardInterrupt):
        put("http://127.0.0.1:9/out")
    [kept] = tmp_path.iterdir()
    assert kept.read_bytes() == WHOLE + UNREAD
    assert f"with -o {kept} it goes on" in capsys.readouterr().err


def test_nothing_is_kept_of_a_run_without_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="early"), AnswerFile.opened("http://127.0.0.1:9/out"):
        raise ValueError("early")
    assert not [*tmp_path.iterdir()]
