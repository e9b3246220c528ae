"""`penstock download`, against a server that speaks the Hub's language: what is kept, gone on with and refused."""

import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.checkpoints import download
from penstock.checkpoints.download import DownloadError, RemoteFile
from tests.checkpoints.stand_in_hub import COMMIT, TOKEN, Hub, blob, hub_with, is_large
from tests.paths import ROOT

SIZE = 24_000_000
KEPT = 2 * 10 * 1024**2
"""What is written of a file that is cut before its end: the Hub's library writes 10 MiB at a time."""
WEIGHTS = "model-00001-of-00002.safetensors"


@pytest.fixture
def hub() -> Iterator[Hub]:
    noise = random.Random(5)
    files = {"config.json": b'{"vocab_size": 8}', "tokenizer.json": b"{}", "pytorch_model.bin": b"pickled",
             "onnx/model.onnx": b"another", WEIGHTS: noise.randbytes(SIZE),
             "model-00002-of-00002.safetensors": noise.randbytes(9)}
    with hub_with(files) as server:
        yield server


def penstock_download(
    hub: Hub, cache: Path, *arguments: str, model: str = "org/model", **variables: str
) -> subprocess.CompletedProcess[str]:
    return penstock(hub, cache, "download", model, *arguments, **variables)


def penstock(hub: Hub, cache: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-m", "penstock", *arguments], cwd=ROOT,
                          env=environment(hub, cache) | variables, capture_output=True, text=True, check=False)


def environment(hub: Hub, cache: Path) -> dict[str, str]:
    return {"HF_HOME": str(cache), "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_TELEMETRY": "1",
            "PATH": os.environ["PATH"], "TMPDIR": str(cache.parent)}


def refusal(hub: Hub, cache: Path, *arguments: str, model: str = "org/model", **variables: str) -> str:
    """The one line that a download which fails ends with."""
    run = penstock_download(hub, cache, *arguments, model=model, **variables)
    assert (run.returncode, run.stdout) == (1, ""), run.stderr
    assert "Traceback" not in run.stderr
    last = run.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    return last


def blobs(cache: Path) -> Path:
    return cache / "hub/models--org--model/blobs"


def test_what_a_server_reads_is_downloaded_and_found_again(hub, tmp_path):
    run = penstock_download(hub, tmp_path, HF_TOKEN=TOKEN)
    snapshot = tmp_path / f"hub/models--org--model/snapshots/{COMMIT}"
    assert run.stdout.splitlines()[-1] == str(snapshot), run.stderr
    assert {path.name for path in snapshot.iterdir()} == {name for name in hub.files if "onnx" not in name} - {
        "pytorch_model.bin"}
    assert (snapshot / WEIGHTS).read_bytes() == hub.files[WEIGHTS]
    assert {f"Bearer {TOKEN}"} == hub.tokens
    hub.gets.clear()
    assert penstock_download(hub, tmp_path, "--revision", "main").stdout == f"{snapshot}\n"
    assert penstock_download(hub, tmp_path, HF_HUB_OFFLINE="1").stdout == f"{snapshot}\n"
    assert hub.gets == []


def test_folders_are_downloaded_that_are_modules_of_sentence_transformers(tmp_path):
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
               {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
               {"idx": 2, "name": "2", "path": "Linear", "type": "sentence_transformers.models.Dense"}]
    wanted = {"config.json": b"{}", "tokenizer.json": b"{}", "modules.json": json.dumps(modules).encode(),
              "1_Pooling/config.json": b"{}", "Linear/config.json": b"{}", "Linear/model.safetensors": b"weights"}
    wanted["model.safetensors"] = b"more weights"
    others = {"1_Spare/config.json": b"{}", "4bit/model.safetensors": b"others", "Linear/pytorch_model.bin": b"pickled"}
    with hub_with(wanted | others) as hub:
        run = penstock_download(hub, tmp_path)
    assert run.returncode == 0, run.stderr
    snapshot = Path(run.stdout.splitlines()[-1])
    assert {str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.is_file()} == {*wanted}, run.stderr


@pytest.mark.slow
def test_download_goes_on_where_it_was_cut(hub, tmp_path):
    hub.cut_after = 22_000_000
    message = refusal(hub, tmp_path)
    assert f"the connection to {hub.url} fails" in message
    assert (blobs(tmp_path) / f"{blob(WEIGHTS, hub.files[WEIGHTS])}.penstock.incomplete").stat().st_size == KEPT
    hub.cut_after = None
    hub.gets.clear()
    run = penstock_download(hub, tmp_path)
    assert run.returncode == 0, run.stderr
    assert (WEIGHTS, f"bytes={KEPT}-") in hub.gets
    assert (Path(run.stdout.strip()) / WEIGHTS).read_bytes() == hub.files[WEIGHTS]
    assert list(blobs(tmp_path).glob("*.incomplete")) == []


@pytest.mark.slow
def test_server_downloads_in_the_same_way_and_logs_json_alone(hub, tmp_path):
    hub.cut_after = 22_000_000
    run = penstock(hub, tmp_path, "serve", "org/model", "--json-output", "--port", "0")
    *lines, last = run.stderr.splitlines()
    targets = {json.loads(line)["target"] for line in lines}
    assert {"penstock.checkpoints.download", "huggingface_hub.file_download"} <= targets
    assert last.startswith(f"Invalid argument: `model_id`: org/model is no directory, and the connection to {hub.url}")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_for_another_download_says_so_and_can_be_ended(hub, tmp_path, number):
    folder = blobs(tmp_path)
    folder.mkdir(parents=True)
    arguments = [sys.executable, "-P", "-m", "penstock", "download", "org/model"]
    with (folder / f"{blob(WEIGHTS, hub.files[WEIGHTS])}.penstock.incomplete").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with subprocess.Popen(arguments, cwd=ROOT, env=environment(hub, tmp_path), stderr=subprocess.PIPE,
                              text=True) as process:
            assert any(f"Another process downloads {WEIGHTS}: waiting" in line for line in process.stderr)
            process.send_signal(number)
            assert process.wait(30) == 128 + number


@pytest.mark.slow
def test_addresses_that_open_a_file_are_not_logged_and_see_no_token(hub, tmp_path):
    hub.is_signing = True
    run = penstock_download(hub, tmp_path, HF_TOKEN=TOKEN)
    assert run.returncode == 0, run.stderr
    assert hub.signed_tokens == [None, None]
    assert "Signature" not in run.stderr


@pytest.mark.slow
def test_what_is_cached_is_taken_with_a_warning_where_the_hub_refuses(hub, tmp_path):
    assert penstock_download(hub, tmp_path).returncode == 0
    hub.is_refusing = True
    run = penstock_download(hub, tmp_path)
    assert run.returncode == 0
    assert f"the commit {COMMIT} that is cached is taken, which may not be the newest" in run.stderr


@pytest.mark.slow
def test_damaged_content_is_not_kept(hub, tmp_path):
    hub.damaged = True
    message = refusal(hub, tmp_path)
    assert ".safetensors was damaged on its way, its checksum is " in message
    assert "it was removed, download it again" in message
    right = {blob(name, content) for name, content in hub.files.items() if not is_large(name)}
    assert {path.name for path in blobs(tmp_path).iterdir() if path.suffix != ".incomplete"} <= right
    hub.damaged = False
    assert penstock_download(hub, tmp_path).returncode == 0


@pytest.mark.slow
def test_damaged_beginning_is_downloaded_again(hub, tmp_path):
    blobs(tmp_path).mkdir(parents=True)
    (blobs(tmp_path) / f"{blob(WEIGHTS, hub.files[WEIGHTS])}.penstock.incomplete").write_bytes(b"\0" * KEPT)
    run = penstock_download(hub, tmp_path)
    assert run.returncode == 0, run.stderr
    assert [wanted for name, wanted in hub.gets if name == WEIGHTS] == [f"bytes={KEPT}-", None]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "arguments", "variables", "message"), [
    ("org/none", (), {}, "has no model org/none that your token may read: check the name"),
    ("org/gated", (), {}, "org/gated is gated: ask for access at"),
    ("org/model", ("--revision", "v9"), {}, "org/model has no revision v9: give a branch, tag or commit"),
    ("a/b/c", (), {}, "a/b/c is no name of a model on the Hub, such as"),
    ("./here", (), {}, "there is no directory ./here"),
    ("org/model", (), {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE forbids downloads: unset that, or fill the cache"),
    ("org/model", (), {"HF_ENDPOINT": "http://127.0.0.1:9"}, "the connection to http://127.0.0.1:9 fails"),
    ("org/model", ("--huggingface-hub-cache", "/proc/nothing"), {}, "--huggingface-hub-cache")])
def test_what_fails_is_said_in_a_sentence(hub, tmp_path, model, arguments, variables, message):
    assert message in refusal(hub, tmp_path, *arguments, model=model, **variables)


@pytest.mark.slow
def test_full_disk_keeps_what_was_downloaded(hub, tmp_path):
    """The limit of a file's size stands for the disk: both end a write."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (15_000_000, {resource.RLIM_INFINITY}))"
    (tmp_path / "limit").mkdir()
    (tmp_path / "limit/sitecustomize.py").write_text(limited)
    message = refusal(hub, tmp_path / "cache", PYTHONPATH=str(tmp_path / "limit"))
    assert f"the disk of {tmp_path / 'cache/hub'} is full (File too large): free some space" in message
    run = penstock_download(hub, tmp_path / "cache")
    assert run.returncode == 0, run.stderr
    assert any(wanted for name, wanted in hub.gets if name == WEIGHTS)


def test_files_that_do_not_fit_are_not_begun(tmp_path):
    file = RemoteFile("model.safetensors", 10**18, "0" * 64, is_large=True)
    with pytest.raises(DownloadError, match=r"has .* free, and 1000000000\.0 GB are to be downloaded: free some"):
        download.download([(file, "http://127.0.0.1:9")], tmp_path, {}, has_bars=False)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_logged_where_there_are_no_bars(hub, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(download, "LOG_SECONDS", 0.001)
    content = hub.files[WEIGHTS]
    file = RemoteFile(WEIGHTS, SIZE, blob(WEIGHTS, content), is_large=True)
    with caplog.at_level("INFO", logger=download.__name__), download._progress([file], tmp_path, has_bars=False):
        (tmp_path / f"{file.blob}.penstock.incomplete").write_bytes(content[:1_500_000])
        while "1.5 MB of 24.0 MB, 0 of 1 files" not in caplog.text:
            pass
