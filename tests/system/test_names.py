"""What messages call a folder that was made of a file."""

from pathlib import Path

import pytest

from penstock.system.names import as_given


@pytest.mark.parametrize(("message", "expected"), [
    ("/tmp/p/checkpoint/config.json: vocab_size: expected 5", "m.gguf: vocab_size: expected 5"),
    ("/tmp/p/checkpoint has no tensor x, and /tmp/p/checkpoint/model.gguf.json neither", "m.gguf has no tensor x, and "
                                                                                       "m.gguf neither"),
    ("/other/config.json is wrong", "/other/config.json is wrong")])
def test_a_file_is_named_as_it_was_given(message: str, expected: str) -> None:
    assert as_given(message, Path("/tmp/p/checkpoint"), "m.gguf") == expected


def test_a_folder_of_the_user_keeps_its_name() -> None:
    assert as_given("/models/a/config.json: x", Path("/models/a"), None) == "/models/a/config.json: x"
