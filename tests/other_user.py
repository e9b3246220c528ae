"""Another user, for tests of who may connect to whom: where root runs them, this process can be one for a while."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER_USER = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@contextmanager
def other_user(folder: Path) -> Iterator[None]:
    """Makes this process OTHER_USER's while the block runs, in a folder that everybody may use. Sockets there have
    names without folders, for those above are closed to it."""
    folder.chmod(0o777)
    before = Path.cwd()
    os.chdir(folder)
    os.seteuid(OTHER_USER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.chdir(before)
