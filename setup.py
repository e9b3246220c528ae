"""Compiles the CPU kernels and fetches the libraries of the pages when the package is built; everything else is in
pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.errors import ExecError

if not (Path(__file__).parent / "penstock/kernels").is_dir():
    sys.exit("penstock/kernels is not a link to the folder kernels: this copy was made without symbolic links, as "
             "programs that unpack ZIP files and git on Windows make it. Clone the repository by git on Linux (on "
             "Windows: inside WSL)")
sys.path.insert(0, str(Path(__file__).parent))

from penstock.kernels import build
from penstock.router.api.http import vendored


class BuildWithLibraries(build_py):
    """The libraries lie in the source tree, as package data, so that an editable install finds them too."""

    def run(self) -> None:
        if build.can_build():
            try:
                build.build()
            except build.BuildError as error:
                if not self.editable_mode:
                    raise ExecError(f"no wheel without compiled kernels can be built here: {error}") from error
                print(f"warning: there will be the slow reference kernels only: {error}", file=sys.stderr)
        try:
            vendored.fetch()
        except vendored.FetchError as error:
            print(f"warning: the pages will do without a library: {error}", file=sys.stderr)
        super().run()


class WheelForEveryPython(bdist_wheel):
    """The libraries know nothing of Python: one wheel is for all versions of it on one kind of machine."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class PlatformDistribution(Distribution):
    """A wheel with the libraries inside is for one kind of machine."""

    def has_ext_modules(self) -> bool:
        return build.can_build()


setup(cmdclass={"build_py": BuildWithLibraries, "bdist_wheel": WheelForEveryPython}, distclass=PlatformDistribution)
