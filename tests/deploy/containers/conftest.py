import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.containers import images
from tests.deploy.containers.container import Container, running
from tests.deploy.containers.engine import Engine, NoEngineError
from tests.deploy.containers.engine import engine as started
from tests.paths import DEMO_MODEL


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks all of the folder's tests."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.containers)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(1500))  # for the first, which builds the image on a busy machine


@pytest.fixture(scope="session")
def bare_engine() -> Iterator[Engine]:
    try:
        with started() as engine:
            yield engine
    except NoEngineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def engine(bare_engine: Engine) -> Engine:
    """An engine that has the server's image."""
    images.ensure_base(bare_engine)
    start = time.monotonic()
    images.build_server(bare_engine)
    print(f"the image was built in {time.monotonic() - start:.0f} s")
    return bare_engine


@pytest.fixture(scope="module")
def served(engine: Engine) -> Iterator[Container]:
    """A container as `docker run IMAGE` makes it."""
    start = time.monotonic()
    with running(engine) as container:
        print(f"{time.monotonic() - start:.1f} s from `docker run` to the first answer")
        yield container


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with the demo model, for a volume."""
    shutil.copytree(DEMO_MODEL, tmp_path / "data" / "demo")
    return tmp_path / "data"
