import shutil
from pathlib import Path

import pytest

from tests.tiny_models import make_tiny


@pytest.fixture(scope="session")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that no test changes."""
    return make_tiny(tmp_path_factory.mktemp("unchanged"))


@pytest.fixture
def model(unchanged: Path, tmp_path: Path) -> Path:
    """A copy of it, for the test to change."""
    return Path(shutil.copytree(unchanged, tmp_path / "model"))
