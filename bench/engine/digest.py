"""How long the digest of a checkpoint takes, beside reading its files: `python -m penstock.bench.engine.digest`.

It makes files of random tensors of 64 MiB in a folder, takes turns at reading and at digesting them, and removes them.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from safetensors.numpy import save_file

from penstock.shard.weights import digest_cache
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.writing import write_index

FILE_TENSORS, TENSOR_BYTES, CHUNK_BYTES = 32, 64 << 20, 8 << 20


@click.command()
@click.option("--gigabytes", default=16.0, show_default=True, help="of 2^30 bytes")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="where; by default the system's own")
@click.option("--rounds", default=2, show_default=True)
def main(gigabytes: float, folder: Path | None, rounds: int) -> None:
    """Prints the seconds of each round: reading by one thread, a digest that nobody kept, and one that was kept. The
    system's cache is dropped before the first two."""
    model = Path(tempfile.mkdtemp(prefix="penstock-digest-", dir=folder))
    try:
        files = _make(model, round(gigabytes * (1 << 30) / TENSOR_BYTES))
        size = sum(path.stat().st_size for path in files)
        time.sleep(digest_cache.SETTLED_NS / 1e9)
        print(f"{size / 2**30:.1f} GiB in {len(files)} files, {len(os.sched_getaffinity(0))} processors")
        for _ in range(rounds):
            shutil.rmtree(model / digest_cache.FOLDER, ignore_errors=True)
            read = _seconds(lambda: _read(files), files)
            new = _seconds(lambda: Checkpoint(model).digest(), files)
            known = _seconds(lambda: Checkpoint(model).digest(), [])
            print(f"read {read:.2f} s ({size / read / 1e9:.2f} GB/s), digest {new:.2f} s (× {new / read:.2f}), "
                  f"kept digest {known:.4f} s", flush=True)
    finally:
        shutil.rmtree(model)


def _make(model: Path, number: int) -> list[Path]:
    random = np.random.default_rng(0)
    files: list[Path] = []
    for first in range(0, number, FILE_TENSORS):
        own = range(first, min(first + FILE_TENSORS, number))
        files.append(model / f"model-{len(files):05}.safetensors")
        save_file({f"layers.{index}.weight": random.integers(0, 2**63, TENSOR_BYTES // 8) for index in own}, files[-1])
    write_index(model, files)
    return files


def _read(files: list[Path]) -> None:
    buffer = bytearray(CHUNK_BYTES)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _seconds(work: Callable[[], object], dropped: list[Path]) -> float:
    """Returns how long work takes, after the system has dropped what it holds of files."""
    for path in dropped:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    began_at = time.monotonic()
    work()
    return time.monotonic() - began_at


if __name__ == "__main__":
    main()
