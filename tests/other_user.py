"""Another user, for tests of who may connect to whom: where root runs them, this process can be one for a while."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER_USER = 65534
_CAP_SETUID = 1 << 7


def _may_become_another_user() -> bool:
    """Root in a container may lack the capability."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return os.geteuid() == 0 and bool(int(lines["CapEff"], 16) & _CAP_SETUID)


only_root = pytest.mark.skipif(not _may_become_another_user(), reason="only root can become another user")


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
