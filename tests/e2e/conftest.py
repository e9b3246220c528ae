"""One server for the tests that do it no harm, and one browser; where workers share the files, one for each worker."""

from collections.abc import Iterator

import pytest

from tests.e2e.browser import browser as started
from tests.e2e.recorded.answers import FLAGS
from tests.e2e.server import Server, serve


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The demo model on two shards, as it is by default but for limits that some of the tests need."""
    flags = ["--num-shard", "2", "--max-client-batch-size", "8", *FLAGS]
    folder = tmp_path_factory.mktemp("server")
    with serve(folder, *flags, "--data-dir", str(folder / "data")) as server:
        yield server


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a browser."""
    with started(tmp_path_factory.mktemp("browser")) as address:
        yield address
