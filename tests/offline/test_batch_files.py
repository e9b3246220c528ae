"""The file of a batch's answers, as killed runs leave it, and files that are none."""

from pathlib import Path

import pytest

from penstock.offline.batch_files import AnswerFile, NotAnswers, downloaded, key_of
from penstock.router.batches.answers import LineAnswer, no_answer

WHOLE = LineAnswer("a", 200, "req", {"choices": []}).to_json()
UNREAD = no_answer(None, "invalid_json_line", "line 4: it can't be read")
KEYS = {key_of("a", None), key_of(None, "line 4: it can't be read")}


@pytest.mark.parametrize("torn", [b"", b"{", WHOLE[:-1], WHOLE[:40]], ids=len)
def test_a_torn_line_is_cut_off_and_written_anew(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(WHOLE + UNREAD + torn)
    with AnswerFile.opened(str(path)) as answers:
        assert answers.known == KEYS
        answers.append(WHOLE)
        assert answers.read() == path.read_bytes() == WHOLE + UNREAD + WHOLE


@pytest.mark.parametrize("content", [b"my text\n", b"{}\n", WHOLE + b"[]\n", b'{"custom_id": "a"}\n'], ids=len)
def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(content)
    with (pytest.raises(NotAnswers, match=rf"out.jsonl: line {content.count(bytes([10]))} is no answer of a batch"),
          AnswerFile.opened(str(path))):
        pass
    assert path.read_bytes() == content


def test_one_run_at_a_time_writes_a_file(tmp_path: Path) -> None:
    name = str(tmp_path / "out.jsonl")
    with (AnswerFile.opened(name), pytest.raises(NotAnswers, match="is written by another run"),
          AnswerFile.opened(name)):
        pass
    with AnswerFile.opened(name) as answers:
        assert answers.known == frozenset()


def test_files_that_are_not_there() -> None:
    with pytest.raises(OSError, match="No such file"), downloaded("/nowhere/in.jsonl"):
        pass
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:9/in can't be read"), downloaded("http://127.0.0.1:9/in"):
        pass
