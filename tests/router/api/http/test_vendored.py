"""The pages' libraries are fetched once, from a registry or its mirror, and only what has the recorded hash is kept."""

import hashlib
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from penstock.router.api.http import vendored
from penstock.router.api.http.vendored import FetchError, Package

FILES = {"lib/a.js": b"let a;", "LICENSE": b"Do as you like.", "left/out.js": b""}


def publish(mirror: Path, version: str = "1.0") -> Package:
    """Puts a version of a package into a mirror of the registry."""
    archive = mirror / f"a/-/a-{version}.tgz"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as content:
        for name, text in FILES.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(text)
            content.addfile(member, BytesIO(text))
    return Package("a", version, hashlib.sha256(archive.read_bytes()).hexdigest(), ("lib/a.js", "LICENSE"))


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(vendored, "FOLDER", tmp_path / "vendored")
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{tmp_path.as_uri()}/mirror/")
    return tmp_path / "mirror"


def test_files_are_fetched_once(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = publish(mirror)
    monkeypatch.setattr(vendored, "PACKAGES", (package,))
    vendored.fetch()
    assert {path.name: path.read_bytes() for path in package.folder.iterdir()} == {
        "a.js": FILES["lib/a.js"], "LICENSE": FILES["LICENSE"]}
    mirror.rename(mirror.with_name("gone"))
    vendored.fetch()


def test_another_version_takes_the_place(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1.0", "2.0"):
        monkeypatch.setattr(vendored, "PACKAGES", (publish(mirror, version),))
        vendored.fetch()
    assert [folder.name for folder in vendored.FOLDER.iterdir()] == ["a-2.0"]


def test_an_archive_of_another_hash_is_refused(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = publish(mirror)
    monkeypatch.setattr(vendored, "PACKAGES", (package,))
    archive = mirror / "a/-/a-1.0.tgz"
    archive.write_bytes(archive.read_bytes() + b"!")
    with pytest.raises(FetchError, match=package.sha256):
        vendored.fetch()
    assert not package.folder.exists()


def test_a_registry_that_does_not_answer_is_named(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendored, "PACKAGES", (publish(mirror),))
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9")
    with pytest.raises(FetchError, match=r"http://127.0.0.1:9/a/-/a-1.0.tgz can't be fetched"):
        vendored.fetch()


@pytest.mark.parametrize("package", vendored.PACKAGES, ids=lambda package: package.name)
def test_each_is_here_with_its_licence(package: Package) -> None:
    assert package.folder.is_dir(), "run `make setup` where the npm registry can be reached"
    assert package.file("LICENSE").read_text()
    assert f'"version": "{package.version}"' in package.file("package.json").read_text()
