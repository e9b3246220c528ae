"""Compiles the CPU kernels when the package is built; everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))

from penstock.kernels import build


class BuildWithKernels(build_py):
    """The libraries lie in the source tree, as package data, so that an editable install finds them too."""

    def run(self) -> None:
        if build.can_build():
            try:
                build.build()
            except build.BuildError as error:
                print(f"warning: there will be the slow reference kernels only: {error}", file=sys.stderr)
        super().run()


class PlatformDistribution(Distribution):
    """A wheel with the libraries inside is for one kind of machine."""

    def has_ext_modules(self) -> bool:
        return build.can_build()


setup(cmdclass={"build_py": BuildWithKernels}, distclass=PlatformDistribution)
