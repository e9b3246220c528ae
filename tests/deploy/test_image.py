"""What the image is built from agrees with the project: versions, and all that its build needs."""

import re
import subprocess
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.paths import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", (ROOT / "deploy/requirements.txt").read_text(), re.MULTILINE))


def argument(name: str) -> str:
    [value] = re.findall(rf"^ARG {name}=(\S+)$", DOCKERFILE, re.MULTILINE)
    return value


def test_the_lock_file_has_all_that_the_project_needs():
    extras = PROJECT["optional-dependencies"]
    for requirement in map(Requirement, [*PROJECT["dependencies"], *extras["redis"], *extras["checks"]]):
        if requirement.name != "torch":
            version = LOCKED.get(canonicalize_name(requirement.name))
            assert version is not None, requirement
            assert requirement.specifier.contains(version), f"{requirement}, locked is {version}: run `make lock`"


def test_torch_is_the_one_that_is_tested():
    [tested] = re.findall(r"^TORCH \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert argument("TORCH") == tested
    assert "torch" not in LOCKED


def test_the_version_is_the_projects():
    assert argument("VERSION") == PROJECT["version"]


def test_the_base_is_pinned_by_its_contents():
    assert re.fullmatch(r"debian:bookworm-\d{8}-slim@sha256:[0-9a-f]{64}", argument("BASE_IMAGE"))


def test_every_folder_of_the_package_is_sent_to_the_build():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    links = {path.name for path in (ROOT / "penstock").iterdir() if path.is_symlink()}
    assert links | {"penstock", "pyproject.toml", "setup.py", PROJECT["readme"], *PROJECT["license-files"]} <= kept
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert all(any(name == path or name.startswith(f"{path}/") for name in listed) for path in kept)
