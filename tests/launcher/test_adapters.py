"""Adapters on the command line: how they are written, found, downloaded and refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.checkpoints import snapshot
from penstock.checkpoints.download import DownloadError
from penstock.launcher.adapters import AskedAdapter, find_all
from penstock.launcher.hub import Checkpoint
from penstock.launcher.programs import router_programs
from penstock.launcher.socket_folder import SocketFolder
from penstock.router.adapters.source import AdapterSource
from penstock.router.config import RouterConfig
from penstock.system.arguments import InvalidArgument
from tests.checkpoints.stand_in_hub import COMMIT, Hub, hub_with
from tests.checkpoints.test_download import penstock
from tests.paths import ROOT
from tests.router.adapters.folders import PEFT, write_adapter


@pytest.mark.parametrize(("text", "expected"), [
    ("org/one", [("org/one", "org/one", None)]),
    ("org/one@v1", [("org/one", "org/one", "v1")]),
    ("mine=org/one@v1,other=/data/lora", [("mine", "org/one", "v1"), ("other", "/data/lora", None)]),
    (" a , b=c ,", [("a", "a", None), ("b", "c", None)]),
    ("", []),
])
def test_the_syntax_is_tgis(parse, text, expected):
    asked = tuple(AskedAdapter(*each) for each in expected)
    assert parse("--lora-adapters", text).lora_adapters == asked
    assert parse(LORA_ADAPTERS=text).lora_adapters == asked
    assert parse().lora_adapters == ()


@pytest.mark.parametrize("text", ["a=b=c", "a@1@2", "=b", "a=", "@v1", "a=@v", "a,b=c@"])
def test_what_is_no_adapter_is_refused(invoke, started, text):
    result = invoke("--model-id", "m", "--lora-adapters", text)
    assert result.exit_code == 2
    assert "is not an adapter such as NAME, NAME=PLACE or NAME=PLACE@REVISION" in result.output
    assert not started


def test_text_that_is_not_utf_8_is_refused(invoke):
    result = invoke("--model-id", "m", "--lora-adapters", "a=/\udcff")
    assert result.output == "Invalid argument: `lora_adapters` must be UTF-8\n"


def find(*asked: AskedAdapter, cache: Path | None = None) -> tuple[AdapterSource, ...]:
    return find_all(asked, "org/base", cache, has_bars=False)


def test_folders_are_taken_as_they_are(tmp_path, monkeypatch):
    write_adapter(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    assert find(AskedAdapter("mine", "a", "v1"), AskedAdapter("full", str(tmp_path / "a"))) == (
        AdapterSource("mine", tmp_path / "a", "a", "v1"),
        AdapterSource("full", tmp_path / "a", str(tmp_path / "a")))


@pytest.mark.parametrize(("name", "fault"), [
    ("tgi", "must not be tgi, by which"), ("org/base", "must not be org/base"), ("a\tb", "must have printable"),
    ("a" * 257, "at most 256 characters. Given: 257")])
def test_names_that_can_not_be_used(tmp_path, name, fault):
    write_adapter(tmp_path)
    with pytest.raises(InvalidArgument, match=rf"^`lora_adapters`: the name .* {fault}"):
        find(AskedAdapter(name, str(tmp_path)))


def test_a_name_is_given_once(tmp_path):
    with pytest.raises(InvalidArgument, match=r"`lora_adapters`: there are two adapters of the name a$"):
        find(AskedAdapter("a", "x"), AskedAdapter("a", "y"))


def test_what_is_missing_or_not_served_is_named(tmp_path):
    with pytest.raises(InvalidArgument, match=r"`lora_adapters`: there is no directory /no/where"):
        find(AskedAdapter("a", "/no/where"))
    with pytest.raises(InvalidArgument, match=r"`lora_adapters`: a: .*/adapter_config.json: No such file or directory"):
        find(AskedAdapter("a", str(tmp_path)))
    write_adapter(tmp_path, modules_to_save=["lm_head"])
    with pytest.raises(InvalidArgument, match=r"`lora_adapters`: a: .*adapter_config.json: modules_to_save is"):
        find(AskedAdapter("a", str(tmp_path)))
    (write_adapter(tmp_path) / "adapter_model.safetensors").rename(tmp_path / "adapter_model.bin")
    with pytest.raises(InvalidArgument, match=r"there is no such file; PEFT's save_pretrained"):
        find(AskedAdapter("a", str(tmp_path)))


def test_a_download_that_fails_names_the_option(monkeypatch):
    def fail(*arguments: object, **more: object) -> Path:
        raise DownloadError("there is no network")

    monkeypatch.setattr(snapshot, "fetch", fail)
    with pytest.raises(InvalidArgument, match=r"^`lora_adapters`: org/a is no directory, and there is no network$"):
        find(AskedAdapter("a", "org/a"))


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = write_adapter(tmp_path / "origin")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with hub_with({**files, "training_args.bin": b"pickled", "checkpoint-1/adapter_config.json": b"{}"}) as server:
        yield server


def test_the_hubs_are_downloaded_by_the_command_and_found_in_the_cache(hub, tmp_path):
    this_tree = {"PYTHONPATH": str(ROOT)}  # which need not be the one that is installed
    run = penstock(hub, tmp_path / "cache", "download", "org/model", **this_tree)
    assert run.returncode == 0, run.stderr
    folder = Path(run.stdout.strip())
    assert folder.name == COMMIT
    assert {path.name for path in folder.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    assert json.loads((folder / "adapter_config.json").read_text()) == PEFT
    served = penstock(hub, tmp_path / "cache", "serve", "org/model", "--port", "0", **this_tree)
    assert served.returncode == 2
    assert "is an adapter (LoRA): give it as --lora-adapters" in served.stderr


def test_only_the_two_files_are_fetched(monkeypatch, tmp_path):
    write_adapter(tmp_path / "abc")
    asked = []

    def fetch(*arguments: object, **more: object) -> Path:
        asked.append((arguments, more))
        return tmp_path / "abc"

    monkeypatch.setattr(snapshot, "fetch", fetch)
    assert find(AskedAdapter("a", "org/a", "v1"), cache=tmp_path) == (
        AdapterSource("a", tmp_path / "abc", "org/a", "abc"),)
    assert asked == [(("org/a", "v1", tmp_path, False), {
        "files": ["adapter_config.json", "adapter_model.safetensors"], "not_files": []})]


def test_the_router_is_told(parse):
    config = parse("--max-adapter-memory", "2MiB", "--allow-runtime-adapters", "--api-key", "k")
    adapters = (AdapterSource("a", Path("/x y"), "org/a", "abc"), AdapterSource("b", Path("/b"), "/b"))
    [program] = router_programs(config, Checkpoint(Path("/m"), None), SocketFolder(Path("/s")), 3, [4], adapters)
    told = RouterConfig.from_argv([*program.argv[program.argv.index("penstock.router") + 1:], "--signs-fd", "5"])
    assert told.adapters == adapters
    assert (told.max_adapter_memory, told.allow_runtime_adapters) == (2 * 2**20, True)
    many = [AdapterSource(f"{number}", Path("/a" * 50), "x") for number in range(2000)]
    with pytest.raises(InvalidArgument, match=r"`lora_adapters`: 2000 adapters are more than a command line can hold"):
        router_programs(config, Checkpoint(Path("/m"), None), SocketFolder(Path("/s")), 3, [4], many)


def test_clients_may_change_adapters_only_where_there_is_a_key(invoke, parse, tmp_path):
    result = invoke("--model-id", "m", "--allow-runtime-adapters")
    assert result.output == (
        "Invalid argument: `allow_runtime_adapters` needs an `api_key`, or anybody could load adapters\n")
    (tmp_path / "keys").write_text("k\n")
    assert parse("--allow-runtime-adapters", "--api-key-file", str(tmp_path / "keys")).allow_runtime_adapters
    assert parse(ALLOW_RUNTIME_ADAPTERS="true", API_KEY="k").allow_runtime_adapters
