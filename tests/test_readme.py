"""The tree in docs/architecture.md is the tree, the README stays short, and the files that pages name are there."""

import re

import pytest

from tests.paths import ROOT

README = (ROOT / "README.md").read_text()
PAGES = [str(path.relative_to(ROOT)) for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])]
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()


def tree() -> set[str]:
    """Reads the folders of the page's tree: names at the beginning of a line, below those of an earlier line."""
    block = ARCHITECTURE.partition("## The tree")[2].split("```")[1].removeprefix("text")
    folders: set[str] = set()
    parent = ""
    for line in filter(None, block.splitlines()):
        names = re.match(r" *((?:[a-z_]+/ )*[a-z_]+/)", line)
        assert names, line
        is_below = line.startswith(" ")
        folders |= {f"{parent if is_below else ''}{name}" for name in names[1].split()}
        parent = parent if is_below else names[1]
    return folders


def test_the_tree_is_the_tree():
    tops = {path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")
            and path.name not in {"build"} and not path.name.endswith(".egg-info")}
    inside = {path.parent for top in ("router", "shard") for path in (ROOT / top).glob("*/__init__.py")}
    assert tree() == {f"{path.relative_to(ROOT)}/" for path in tops | inside}


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page):
    """Those of the pages of the site are checked where it is made."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_a_page_names_are_there(page):
    """A name of a test may begin inside tests/, as in the list of behaviours."""
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
    named = re.findall(rf"`((?:{folders})/[\w/.]+\.\w+)[:`]", (ROOT / page).read_text())
    assert [name for name in named if not any((folder / name).exists() for folder in (ROOT, ROOT / "tests"))] == []
