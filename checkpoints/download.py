"""Downloads the files of a checkpoint from the Hugging Face Hub into its cache: several at once, on from where an
earlier download stopped, and none kept whose content isn't what the Hub says.

The Hub's own library starts a file anew after an interruption and compares sizes alone. It is left what it does well:
tokens, retries, and the links in the cache.
"""

import errno
import fcntl
import hashlib
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

LOG_SECONDS = 10.0
"""How often the log tells of progress where there are no bars."""
FILES_AT_ONCE = 8
READ_BYTES = 1 << 20
LOCK_SECONDS = 0.2
"""How often a file that another process downloads is looked at."""

log = logging.getLogger(__name__)


class DownloadError(Exception):
    """A checkpoint could not be downloaded; the message says why, and what to do."""


class _StoppedError(Exception):
    """Another file failed, so this one is left for the next attempt."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as the Hub describes it: `blob` is the hash by which the cache and Git name its content, SHA-256 for
    files in large file storage and Git's own for the others."""

    name: str
    size: int
    blob: str
    is_large: bool

    def hasher(self) -> Any:
        """Returns a new hash object for the content."""
        return hashlib.sha256() if self.is_large else hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)


def download(files: Sequence[tuple[RemoteFile, str]], folder: Path, headers: dict[str, str], has_bars: bool) -> None:
    """Downloads each file that `folder`, the blobs of the cache, does not have yet from its URL.

    Raises DownloadError, and OSError and the HTTP library's errors as they come.
    """
    missing = [(file, url) for file, url in files if not _is_there(folder, file)]
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    _check_space([file for file, _ in missing], folder)
    stop = threading.Event()
    with _progress([file for file, _ in missing], folder, has_bars), ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        try:
            running = [pool.submit(_fetch, file, url, folder, headers, bar_class(has_bars, stop), stop)
                       for file, url in missing]
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _check_space(files: Sequence[RemoteFile], folder: Path) -> None:
    needed = sum(file.size - _size(_partial(folder, file)) for file in files)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DownloadError(f"the disk of {folder} has {gigabytes(free)} free, and {gigabytes(needed)} are to be "
                            "downloaded: free some, or give another directory as HF_HOME or --huggingface-hub-cache")


def _fetch(
    file: RemoteFile, url: str, folder: Path, headers: dict[str, str], bar: type[Any], stop: threading.Event
) -> None:
    """Downloads the missing part of a file, and gives it its name in the cache once its content is right."""
    partial = _partial(folder, file)
    with _locked(partial, file.name, stop) as content:
        if _is_there(folder, file):
            partial.unlink()
            return
        here = content.seek(0, os.SEEK_END)
        if here > file.size:
            here = content.truncate(0)
        found = _complete(file, url, content, here, headers, bar)
        if found != file.blob and here > 0:  # what was there was not of this file, or damaged
            found = _complete(file, url, content, content.truncate(0), headers, bar)
        if found != file.blob:
            partial.unlink()
            raise DownloadError(f"{file.name} was damaged on its way, its checksum is {found} and not {file.blob}: "
                                "it was removed, download it again")
        partial.rename(folder / file.blob)


def _complete(
    file: RemoteFile, url: str, content: BinaryIO, here: int, headers: dict[str, str], bar: type[Any]
) -> str:
    """Downloads a file from byte `here` on, and returns the hash of all."""
    from huggingface_hub.file_download import http_get
    if here < file.size:
        http_get(url, content, resume_size=here, headers=headers, expected_size=file.size,
                 displayed_filename=file.name, tqdm_class=bar)
        content.flush()
    return _hash(file, content)


@contextmanager
def _locked(path: Path, name: str, stop: threading.Event) -> Iterator[BinaryIO]:
    """Opens a file to add to it, and keeps it from other processes that download the same, for which it waits."""
    while True:
        with path.open("ab+") as content:
            _lock(content, name, stop)
            if path.exists() and path.stat().st_ino == os.fstat(content.fileno()).st_ino:  # else it is no more
                yield content
                return


def _lock(content: BinaryIO, name: str, stop: threading.Event) -> None:
    waits = False
    while True:
        try:
            fcntl.flock(content, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not waits:
                log.info("Another process downloads %s: waiting for it", name)
            waits = True
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            log.warning("The cache's file system has no locks: let no other process download %s now", name)
            return
        if stop.wait(LOCK_SECONDS):
            raise _StoppedError


def _is_there(folder: Path, file: RemoteFile) -> bool:
    return (folder / file.blob).exists() and _size(folder / file.blob) == file.size


def _hash(file: RemoteFile, content: BinaryIO) -> str:
    content.seek(0)
    hasher = file.hasher()
    while part := content.read(READ_BYTES):
        hasher.update(part)
    digest: str = hasher.hexdigest()
    return digest


def _partial(folder: Path, file: RemoteFile) -> Path:
    return folder / f"{file.blob}.penstock.incomplete"  # the Hub's library writes to BLOB.incomplete, with other locks


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def bar_class(has_bars: bool, stop: threading.Event) -> type:
    """Returns the bar of a file, in which a download ends when all are to stop."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            options.pop("name", None)
            super().__init__(*arguments, **{**options, "disable": not has_bars, "file": sys.stderr})

        def update(self, n: float | None = 1) -> bool | None:
            if stop.is_set():
                raise _StoppedError
            return super().update(n)

    return Bar


@contextmanager
def _progress(files: Sequence[RemoteFile], folder: Path, has_bars: bool) -> Iterator[None]:
    """Logs how much of the files is there while the block runs, if no bars show it."""
    ended = threading.Event()
    total = sum(file.size for file in files)
    begin = time.monotonic()

    def tell() -> None:
        while not ended.wait(LOG_SECONDS):
            here = sum(_size(_partial(folder, file)) or _size(folder / file.blob) for file in files)
            log.info("Downloading: %s of %s, %d of %d files are complete", gigabytes(here), gigabytes(total),
                     sum(_is_there(folder, file) for file in files), len(files))

    log.info("Downloading %s in %d files to %s", gigabytes(total), len(files), folder)
    teller = threading.Thread(target=tell, daemon=True)
    if not has_bars:
        teller.start()
    try:
        yield
        log.info("Downloaded %s in %.0f s", gigabytes(total), time.monotonic() - begin)
    finally:
        ended.set()


def gigabytes(size: int) -> str:
    """Returns a number of bytes for people: `1.2 GB`, or `3.4 MB` below a tenth of a gigabyte."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def is_disk_full(error: OSError) -> bool:
    """Tells whether an error means that nothing more can be written: disk, quota or the limit of a file's size."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
