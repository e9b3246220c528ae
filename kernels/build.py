"""`python -m penstock.kernels.build`: compiles csrc/ into kernels/lib/, a shared library for each instruction path.

The name of a library has the hash of what it was made from, so a library that is there is never made again, and one of
other sources is never loaded. Needs a C++20 compiler (the variable CXX, or c++) and nothing else, torch least of all.
"""

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCES = Path(__file__).parent / "csrc"
LIBRARIES = Path(__file__).parent / "lib"

_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mprefer-vector-width=512")
PATHS = {"avx512_bf16": (*_AVX512, "-mavx512bf16"), "avx512": _AVX512, "avx2": _AVX2}
"""The instruction paths, the best first, and what the compiler is told for them."""

# GCC 12 finds variables without a value in its own AVX-512 header.
_FLAGS = ("-std=c++20", "-O3", "-Wall", "-Wextra", "-Wno-maybe-uninitialized", "-ffp-contract=off", "-fno-math-errno",
          "-fno-trapping-math", "-fvisibility=hidden", "-fPIC", "-shared", "-pthread")
_SANITIZE = ("-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


class BuildError(RuntimeError):
    """The kernels could not be compiled; the message says why, in the compiler's words."""


def library(path: str, is_sanitized: bool = False) -> Path:
    """Returns where the library of an instruction path lies once it is built from the present sources."""
    digest = hashlib.sha256(" ".join(_flags(path, is_sanitized)).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    return LIBRARIES / f"penstock-{path}-{digest.hexdigest()[:16]}{'-sanitized' * is_sanitized}.so"


def build(is_sanitized: bool = False) -> list[Path]:
    """Makes the libraries that are missing, and removes those made from other sources. Raises BuildError."""
    wanted = {path: library(path, is_sanitized) for path in PATHS}
    missing = [path for path, file in wanted.items() if not file.exists()]
    LIBRARIES.mkdir(exist_ok=True)
    if missing:
        print(f"compiling the kernels for {', '.join(missing)}", file=sys.stderr)
        # The largest first, so that all processors end at about the same time.
        sources = sorted(SOURCES.glob("*.cpp"), key=lambda source: -source.stat().st_size)
        with TemporaryDirectory(dir=LIBRARIES) as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
            parts = [(path, source, Path(folder) / f"{path}-{source.stem}.o") for source in sources for path in missing]
            list(pool.map(lambda part: _run(part[0], is_sanitized, "-c", part[1], "-o", part[2]), parts))
            for path in missing:
                library_file = Path(folder) / wanted[path].name
                _run(path, is_sanitized, *(part for name, _, part in parts if name == path), "-o", library_file)
                library_file.rename(wanted[path])
    for file in LIBRARIES.glob("*.so"):
        if file not in wanted.values() and file.stem.endswith("-sanitized") == is_sanitized:
            file.unlink()
    return list(wanted.values())


def can_build() -> bool:
    """Tells whether the sources are written for this kind of machine."""
    return platform.system() == "Linux" and platform.machine() == "x86_64"


def compiler() -> list[str]:
    """Returns the command of the C++ compiler."""
    return shlex.split(os.environ.get("CXX") or "c++")


def _flags(path: str, is_sanitized: bool) -> tuple[str, ...]:
    return (*_FLAGS, *PATHS[path], *(_SANITIZE if is_sanitized else ()))


def _run(path: str, is_sanitized: bool, *arguments: str | Path) -> None:
    """Runs the compiler for an instruction path. Raises BuildError."""
    program = compiler()
    command = [*program, *_flags(path, is_sanitized), *map(str, arguments)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise BuildError(f"the CPU kernels need a C++ compiler, {program[0]} is not there: "
                         "apt-get install g++") from error
    except subprocess.CalledProcessError as error:
        raise BuildError(f"{shlex.join(command)}\n{error.stderr}") from error


def main() -> None:
    if not can_build():
        print(f"There are no compiled kernels for {platform.machine()}: the reference serves", file=sys.stderr)
        return
    try:
        build(is_sanitized="--sanitize" in sys.argv[1:])
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
