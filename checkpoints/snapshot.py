"""Brings a model of the Hugging Face Hub into its cache, and says in a sentence why it can't be had."""

import errno
import glob
import logging
import threading
from contextlib import suppress
from pathlib import Path

from huggingface_hub import HfApi, constants, hf_hub_url, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.hf_api import ModelInfo
from huggingface_hub.utils import build_hf_headers, filter_repo_objects  # type: ignore[attr-defined]

from penstock.checkpoints import download
from penstock.checkpoints.download import DownloadError, RemoteFile
from penstock.checkpoints.sentence_modules import module_folders
from penstock.system.fields import FileError

FILES = ["*.safetensors", "*.json", "*.jinja", "tokenizer*", "tiktoken.model", "*.tiktoken", "merges.txt"]
NOT_FILES = ["*/*.safetensors", "*/*.json", "*/*.tiktoken", "tokenizer*/*", "consolidated*"]
"""The files that are not downloaded: sub-directories hold other formats, except `additional_chat_templates` and those
of sentence-transformers' modules, and `consolidated` files hold the same weights once more."""
ANSWER_SECONDS = 30.0
"""How long the Hub may take to list a model's files."""

log = logging.getLogger(__name__)

_HTTP_ERROR: type[Exception] = next(base for base in HfHubHTTPError.__bases__ if base is not OSError)
"""The error that the Hub's library raises for a failed connection: its HTTP library differs between versions."""


def fetch(
    name: str, revision: str | None, cache: Path | None, has_bars: bool, files: list[str] = FILES,
    not_files: list[str] = NOT_FILES,
) -> Path:
    """Downloads the files of a model that a server reads, unless they are cached, and returns the directory.

    files, not_files: patterns of the names of files that are downloaded, and that are not

    Without a network, and where the Hub refuses to answer, what is cached will do. Raises DownloadError.
    """
    hub_log = logging.getLogger("huggingface_hub")
    hub_log.handlers.clear()  # its lines are for the log, too, which may be JSON
    hub_log.propagate = True
    place = cache or Path(constants.HF_HUB_CACHE)
    try:
        try:
            listing = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=ANSWER_SECONDS)
        except RevisionNotFoundError:
            raise
        except (_HTTP_ERROR, OfflineModeIsEnabled) as error:
            path = _cached(name, revision, place, error, files, not_files)
            if not isinstance(error, OfflineModeIsEnabled):
                log.warning("%s; the commit %s that is cached is taken, which may not be the newest",
                            _sentence(error, name, revision, place), path.name)
            return path
        path = _fetched(name, revision, listing, place, has_bars, files, not_files)
        if more := _of_modules(path):
            _fetched(name, revision, listing, place, has_bars, more, [])
        return path
    except (OSError, ValueError, _HTTP_ERROR) as error:
        raise DownloadError(_sentence(error, name, revision, place)) from error


def _of_modules(directory: Path) -> list[str]:
    """Returns the patterns of the files of modules that are in folders of their own. A file that says wrongly which
    they are is left to whoever reads it next."""
    with suppress(FileError):
        return [f"{glob.escape(str(folder))}/*.{ending}" for folder in module_folders(directory)
                for ending in ("json", "safetensors")]
    return []


def _fetched(
    name: str, revision: str | None, listing: ModelInfo, place: Path, has_bars: bool, files: list[str],
    not_files: list[str],
) -> Path:
    """Downloads a model's files, and returns the directory."""
    needs_library = _fetch_blobs(name, listing, place, has_bars, files, not_files)
    bars = download.bar_class(has_bars and needs_library, threading.Event())
    return Path(snapshot_download(name, revision=revision, cache_dir=place, allow_patterns=files,
                                  ignore_patterns=not_files, tqdm_class=bars))


def _cached(
    name: str, revision: str | None, place: Path, error: Exception, files: list[str], not_files: list[str]
) -> Path:
    """Returns the directory of a model that is cached completely; raises `error` if there is none."""
    try:
        return Path(snapshot_download(name, revision=revision, cache_dir=place, allow_patterns=files,
                                      ignore_patterns=not_files, local_files_only=True))
    except LocalEntryNotFoundError:
        raise error from None


def _fetch_blobs(
    name: str, listing: ModelInfo, place: Path, has_bars: bool, files: list[str], not_files: list[str]
) -> bool:
    """Downloads the contents of a model's files; tells whether there are some that only the Hub's library can get."""
    blobs: dict[str, tuple[RemoteFile, str]] = {}
    needs_library = False
    for file in filter_repo_objects(listing.siblings or [], allow_patterns=files, ignore_patterns=not_files,
                                    key=lambda sibling: sibling.rfilename):
        if file.size is None or file.blob_id is None or file.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
            needs_library = True
            continue
        blob = file.lfs.sha256 if file.lfs else file.blob_id
        url = hf_hub_url(name, file.rfilename, revision=listing.sha)
        blobs[blob] = (RemoteFile(file.rfilename, file.size, blob, is_large=file.lfs is not None), url)
    folder = place / repo_folder_name(repo_id=name, repo_type="model") / "blobs"
    download.download([*blobs.values()], folder, build_hf_headers(), has_bars)
    return needs_library


def _sentence(error: Exception, name: str, revision: str | None, place: Path) -> str:
    """Returns a sentence that names the fault and the remedy."""
    hub = constants.ENDPOINT
    match error:
        case OfflineModeIsEnabled():
            return (f"the cache {place} does not have all of it, and HF_HUB_OFFLINE forbids downloads: unset that, or "
                    f"fill the cache where there is a network: penstock download {name}")
        case GatedRepoError():
            return (f"{name} is gated: ask for access at {hub}/{name}, and give the token of the account that has it "
                    "as HF_TOKEN")
        case RepositoryNotFoundError():
            return (f"{hub} has no model {name} that your token may read: check the name, and give a token as HF_TOKEN "
                    "if the model is private")
        case RevisionNotFoundError():
            return f"{name} has no revision {revision}: give a branch, tag or commit that {hub}/{name} has"
        case HfHubHTTPError() if error.response.status_code in (401, 403):
            return f"{hub} refuses the token: give one that may read {name} as HF_TOKEN, or unset HF_TOKEN"
        case HfHubHTTPError():
            return f"{hub} answers with status {error.response.status_code}: try again later"
        case HFValidationError():
            return f"{name} is no name of a model on the Hub, such as Qwen/Qwen2.5-0.5B-Instruct"
        case _ if isinstance(error, _HTTP_ERROR):
            return (f"the connection to {hub} fails ({error or type(error).__name__}): check the network and "
                    "HTTPS_PROXY, then try again; what was downloaded is kept")
        case OSError() if download.is_disk_full(error):
            return (f"the disk of {place} is full ({error.strerror}): free some space, or give another directory as "
                    "HF_HOME or --huggingface-hub-cache; what was downloaded is kept")
        case OSError() if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT):
            return (f"the cache {error.filename or place} cannot be written ({error.strerror}): give a directory that "
                    "can be as HF_HOME or --huggingface-hub-cache")
    return f"it could not be downloaded from {hub}: {error}"
