"""The pages that are made from the code are up to date."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.pages import api, configuration, tools
from tests.paths import ROOT


@pytest.mark.parametrize("page", [configuration, api, tools], ids=lambda page: page.__name__.rpartition(".")[2])
def test_a_page_is_as_the_code_is(page: ModuleType) -> None:
    assert page.PAGE.read_text() == page.render(), "python -m tests.pages writes it anew"


@pytest.mark.slow
def test_the_site_is_made_strictly(tmp_path: Path) -> None:
    """No link, anchor or page is missing, and the search works without a server."""
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
                   cwd=ROOT, check=True)
    assert (tmp_path / "index.html").exists()
    assert (tmp_path / "search/search_index.js").exists()
