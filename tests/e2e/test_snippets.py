"""The snippets of all pages: those in `bash` and `python` run, and the commands in `sh` are at least read.

A snippet in `sh` needs a thing that a test does not have. The reason stands beside each program in `NOT_RUN`.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from penstock.launcher.cli import main as penstock
from penstock.launcher.options import OPTIONS
from tests.e2e.server import Server
from tests.paths import DEMO_MODEL, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
OF_OTHER_MODELS = {"embeddings.md"}
"""Pages whose snippets ask models for vectors and scores: test_embeddings.py runs these."""
OF_OTHER_SERVERS = {*OF_OTHER_MODELS, "around.md", "pipelines.md", "receipts.md"}
"""Those, and the pages whose snippets read records or receipts of a server that gives some, or are functions of one."""
LANGUAGES = {"bash", "python", "sh", "yaml", "json", "ini", "text"}
"""`text` is a picture or a program's output, `ini` a unit of systemd; these are not read."""
FENCED = re.compile(r"^(?P<fence>`{3,})(?P<language>.*)\n(?P<snippet>(?s:.*?))^(?P=fence)$", re.MULTILINE)
"""A snippet between fences; those of one that has fences in it are longer."""
NOT_RUN = {
    "apt-get": "changes the machine",
    "cd": "goes where another program, below, is called",
    "curl": "asks for what this server does not have: adapters, accounts, an answer's id, another port",
    "docker": "needs a container engine; tests/deploy/containers runs images",
    "git": "needs an address of the repository",
    "helm": "needs a cluster; tests/deploy renders the chart",
    "install": "changes the machine",
    "make": "installs, or runs for long; tests/deploy/test_setup.py calls it",
    "openssl": "is not on every machine; keys of tests are made by cryptography",
    "penstock": "names models and machines that are not there; its options are checked",
    "printf": "writes into /etc",
    "python": "runs for long",
    "python3": "changes the machine",
    "sh": "changes the machine",
    "systemctl": "needs systemd",
    "text-generation-launcher": "names models that are not there; its options are checked",
}


def snippets(*languages: str, left_out: Collection[str] = ()) -> Iterator[Any]:
    """Gives the snippets of the pages in one of these languages, named by page and line."""
    for page in PAGES:
        text = page.read_text() if page.name not in left_out else ""
        for found in FENCED.finditer(text):
            if found["language"] in languages:
                line = text.count("\n", 0, found.start()) + 1
                # A program imports its client, which takes the processor a second or two.
                is_slow = found["language"] == "python" and page.name != "README.md"
                yield pytest.param(found["language"], found["snippet"], id=f"{page.name}:{line}",
                                   marks=pytest.mark.slow if is_slow else ())


def test_every_snippet_has_a_language() -> None:
    for page in PAGES:
        text = page.read_text()
        assert {found["language"] for found in FENCED.finditer(text)} <= LANGUAGES, page.name
        assert "```" not in FENCED.sub("", text), page.name


@pytest.mark.parametrize(("language", "snippet"), [*snippets("bash", "python", left_out=OF_OTHER_SERVERS)])
def test_it_runs(server: Server, tmp_path: Path, language: str, snippet: str) -> None:
    """Snippets work as pasted, but for the port and names of machines."""
    program = ["bash", "-euo", "pipefail", "-c"] if language == "bash" else [sys.executable, "-c"]
    snippet = re.sub(r"(localhost|one|two):3000", f"127.0.0.1:{server.port}", snippet)
    snippet = snippet.replace('"MODEL"', repr(str(DEMO_MODEL)))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    result = subprocess.run([*program, snippet], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                            env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout or list(tmp_path.iterdir()), "it did nothing"
    assert not re.search(r'"error": ?(?!null)', result.stdout)


def commands(snippet: str) -> Iterator[list[str]]:
    """Gives the simple commands of a shell's snippet, as words."""
    for line in snippet.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&;()|<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("&;()|"):
                if words:
                    yield words
                words = []
            elif words or not re.fullmatch(r"[A-Z_]+=.*", word):
                words.append(word)


@pytest.mark.parametrize(("language", "snippet"), [*snippets("sh")])
def test_it_is_a_shells(language: str, snippet: str) -> None:
    """The shell reads it, its programs are those that can't run here, and options of ours are there."""
    subprocess.run(["bash", "-n"], input=snippet, text=True, check=True)
    for program, *arguments in commands(snippet):
        name = Path(program).name
        if name in ("umask", "export", "pip", "journalctl"):
            continue
        assert name in NOT_RUN
        if known := options(name, arguments):
            assert {word.partition("=")[0] for word in arguments if word.startswith("--")} <= known


def options(name: str, arguments: list[str]) -> set[str]:
    """Returns the options of a command of ours; an empty set for other programs, and for groups of commands."""
    if name == "text-generation-launcher":
        found: list[click.Parameter] = OPTIONS
    elif name == "penstock" and (command := penstock.get_command(click.Context(penstock), arguments[0])):
        if isinstance(command, click.Group):
            return set()
        found = command.params
    else:
        return set()
    return {option for parameter in found for option in parameter.opts} | {"--help"}


@pytest.mark.parametrize(("language", "snippet"), [*snippets("yaml", "json")])
def test_it_is_data(language: str, snippet: str) -> None:
    assert json.loads(snippet) if language == "json" else list(yaml.safe_load_all(snippet))
