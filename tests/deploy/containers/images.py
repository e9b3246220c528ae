"""The images that the tests run: Penstock's, and what stands beside it, built from Debian's and PyPI's packages."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.kernels import build as kernels
from tests.deploy.containers.engine import CommandError, Engine
from tests.paths import ROOT

OFFICIAL_BASE = re.search(r"^ARG BASE_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[1]
BASE = f"penstock-test-base:{OFFICIAL_BASE.partition(':')[2].partition('@')[0]}"
BUILD_BASE = "penstock-test-build-base"
SERVER = "penstock-test"
SLIM = ("usr/share/man/*", "usr/share/doc/*", "usr/share/locale/*")
"""What Debian's slim image lacks, too."""
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
STANDINS = Path(__file__).parent / "standins"


def build_server(engine: Engine, *, context: Path = ROOT, tag: str = SERVER, target: str = "server") -> None:
    """Builds Penstock's image, with the machine's own settings of pip in the stages that build."""
    base = ensure_base(engine)
    arguments = {"BASE_IMAGE": base, "BUILD_IMAGE": _build_base(engine, base),
                 **{name: os.environ.get(name, "") for name in ("PIP_TORCH_ARGS", "NPM_CONFIG_REGISTRY")}, **_proxies()}
    _build(engine, tag, context, arguments, "--target", target)


def build_standin(engine: Engine, name: str, base: str | None = None) -> str:
    """Builds what is in standins/NAME on the base, Debian's if none is given, and returns the image's name."""
    tag = f"penstock-test-{name}"
    _build(engine, tag, STANDINS / name, {"BASE_IMAGE": base or ensure_base(engine), **_proxies()})
    return tag


def ensure_base(engine: Engine) -> str:
    """Returns the base that the Dockerfile names, if it can be pulled, and else one of Debian's packages."""
    if engine.has_image(BASE):
        return BASE
    try:
        engine.docker("pull", "--quiet", OFFICIAL_BASE, seconds=300)
        return OFFICIAL_BASE
    except (CommandError, subprocess.TimeoutExpired):
        return _made_base(engine)


def _made_base(engine: Engine) -> str:
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "base.tar"
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", "--include=usr-is-merged",
             "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
             *(f"--dpkgopt=path-exclude=/{path}" for path in SLIM), "bookworm", archive],
            check=True, capture_output=True)
        engine.docker("import", archive, BASE)
    return BASE


def _build_base(engine: Engine, base: str) -> str:
    """Makes the base of the stages that build: the machine's certificates, settings of pip, wheels on its disk, and
    most of its compiled kernels."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines, variables = ["[global]", "timeout = 180"], "PIP_CONFIG_FILE=/etc/build/pip.conf"
        settings = _settings_of_pip()
        if "cert" in settings:
            shutil.copy(settings["cert"], folder / "certificates.pem")
            lines.append("cert = /etc/build/certificates.pem")
            variables += " SSL_CERT_FILE=/etc/build/certificates.pem"
        places = [Path(place) for place in shlex.split(settings.get("find-links", ""))]
        wheels = [wheel for place in places for wheel in place.glob("torch-*.whl")]
        for wheel in wheels:
            shutil.copy(wheel, folder / wheel.name)
        if wheels:
            lines.append("find-links = /etc/build")
        lines += [f"{key} = {settings[key]}" for key in ("index-url", "trusted-host") if key in settings]
        (folder / "pip.conf").write_text("\n".join(lines) + "\n")
        (folder / "kernels").mkdir()
        for library in _compiled_kernels():
            shutil.copy(library, folder / "kernels" / library.name)
        (folder / "Dockerfile").write_text(
            f"FROM {base}\nCOPY . /etc/build\nCOPY kernels /src/kernels/lib\nENV {variables}\n")
        engine.docker("build", "--quiet", "--tag", BUILD_BASE, folder, seconds=300)
    return BUILD_BASE


def _compiled_kernels() -> list[Path]:
    """Returns the libraries that the image's own compiler would make of the same sources, but for the last: so it has
    one to make, and not minutes of work. A machine of another release has none, for its libraries may not load."""
    release = OFFICIAL_BASE.partition(":")[2].partition("-")[0]
    if f"VERSION_CODENAME={release}\n" not in Path("/etc/os-release").read_text() or "CXX" in os.environ:
        return []
    return [library for library in map(kernels.library, [*kernels.PATHS][:-1]) if library.exists()]


def _settings_of_pip() -> dict[str, str]:
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    return dict(re.findall(r"^\S+?\.\.?([a-z-]+)='(.*)'$", listed.stdout, re.MULTILINE))


def _proxies() -> dict[str, str]:
    return {name: os.environ[name] for name in PROXIES if name in os.environ}


def _build(engine: Engine, tag: str, context: Path, arguments: Mapping[str, str], *flags: str) -> None:
    given = [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
    engine.docker("build", "--tag", tag, *flags, *given, context, seconds=1200)
