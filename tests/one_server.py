"""Lets one worker have all quick tests of the server that tests/e2e shares, so that it is started once."""

from xdist.scheduler import LoadFileScheduling

FOLDER = "tests/e2e"


class ByServer(LoadFileScheduling):
    """Gives each worker whole files, and the files of one folder to one worker, by which its server is shared."""

    def _split_scope(self, nodeid: str) -> str:
        return FOLDER if nodeid.startswith(f"{FOLDER}/test_") else super()._split_scope(nodeid)
