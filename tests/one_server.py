"""Lets one worker have all quick tests of the server that tests/e2e shares, so that it is started once, those of the
model that tests/offline shares, and those that parse the code, so that it is parsed once."""

from xdist.scheduler import LoadFileScheduling

FOLDERS = ("tests/e2e", "tests/offline")
READERS = ("tests/test_imports.py", "tests/test_english.py", "tests/pages/test_troubleshooting.py")


class ByServer(LoadFileScheduling):
    """Gives each worker whole files, and those that share a server, a model or the parsed code to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(READERS):
            return READERS[0]
        folder = next((each for each in FOLDERS if nodeid.startswith(f"{each}/")), None)
        return folder or super()._split_scope(nodeid)
