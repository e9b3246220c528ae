"""`python -m penstock.router.api.http.vendored`: fetches the libraries of the pages into static/vendored.

They are files of packages of the npm registry, each of one version, whose archive has the hash that is recorded here. A
mirror takes the registry's place if NPM_CONFIG_REGISTRY names one, as it does for npm; `file:///folder` is one, too.
Needs nothing but Python. Where the files can't be fetched, the pages do without them.
"""

import hashlib
import io
import os
import shutil
import sys
import tarfile
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from urllib.request import urlopen

FOLDER = Path(__file__).with_name("static") / "vendored"
REGISTRY = "https://registry.npmjs.org"
SECONDS = 30.0
"""How long the registry may be silent."""
TRIES = 3


@dataclass(frozen=True)
class Package:
    """A version of a package, the SHA-256 of its archive, and the files that are taken from it."""

    name: str
    version: str
    sha256: str
    files: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """The folder of the files, which is there only if all of them are."""
        return FOLDER / f"{self.name}-{self.version}"

    def file(self, name: str) -> Path:
        """Returns where the file of this name lies once it is fetched."""
        return self.folder / name


# Each with its licence, and with the file by which scanners of images know the package.
SWAGGER_UI = Package(
    "swagger-ui-dist", "5.35.0", "1b8e891893404ea4c3558b6a87e2a3e494e7eedba41168c2ece5800a391a6ea6",
    ("swagger-ui-bundle.js", "swagger-ui.css", "swagger-ui-bundle.js.LICENSE.txt", "LICENSE", "NOTICE", "package.json"))
MARKED = Package(
    "marked", "18.2.1", "d66c5213fc203466186060105b01f51896764ba64b3797d2620d02e28e34b8ca",
    ("lib/marked.esm.js", "LICENSE", "package.json"))
DOMPURIFY = Package(
    "dompurify", "3.4.18", "8b86f79c6481fec23dd81d4de32179422668912ed033c0c47e786a6e70cb3379",
    ("dist/purify.es.mjs", "LICENSE", "package.json"))
PACKAGES = (SWAGGER_UI, MARKED, DOMPURIFY)


class FetchError(RuntimeError):
    """A package could not be fetched; the message says which, and why."""


def fetch() -> None:
    """Fetches the packages that are missing, and removes those of other versions. Raises FetchError."""
    FOLDER.mkdir(exist_ok=True)
    for package in PACKAGES:
        if not package.folder.exists():
            print(f"fetching {package.name} {package.version}", file=sys.stderr)
            _unpack(package, _archive(package))
    for folder in FOLDER.iterdir():
        if folder not in {package.folder for package in PACKAGES}:
            shutil.rmtree(folder)


def _archive(package: Package) -> bytes:
    registry = os.environ.get("NPM_CONFIG_REGISTRY") or REGISTRY
    url = f"{registry.rstrip('/')}/{package.name}/-/{package.name}-{package.version}.tgz"
    for left in reversed(range(TRIES)):
        try:
            with urlopen(url, timeout=SECONDS) as response:
                content: bytes = response.read()
            break
        except (OSError, ValueError, HTTPException) as error:
            if not left:
                raise FetchError(f"{url} can't be fetched: {error}") from error
    if hashlib.sha256(content).hexdigest() != package.sha256:
        raise FetchError(f"{url} is not the archive whose SHA-256 is {package.sha256}")
    return content


def _unpack(package: Package, archive: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as content, TemporaryDirectory(dir=FOLDER) as folder:
        made = Path(folder) / "made"
        made.mkdir()
        for name in package.files:
            member = content.extractfile(f"package/{name}")
            assert member is not None
            (made / PurePosixPath(name).name).write_bytes(member.read())
        made.rename(package.folder)


def main() -> None:
    try:
        fetch()
    except FetchError as error:
        sys.exit(f"The pages do without a library: {error}")


if __name__ == "__main__":
    main()
