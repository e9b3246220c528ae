"""The settings of several models: those of the command line, and each model's own."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.launcher import launch as launcher
from penstock.launcher.cli import main
from penstock.launcher.config import LauncherConfig
from penstock.launcher.launch import check_memory
from penstock.launcher.served_models import ServedModels
from penstock.system.arguments import InvalidArgument
from tests.launcher.conftest import Invoke

Serve = Callable[..., ServedModels]


@pytest.fixture
def found(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> list[ServedModels]:
    """The models that would be launched."""
    found: list[ServedModels] = []
    monkeypatch.setattr(launcher, "launch", lambda models: found.append(models) or 0)  # type: ignore[func-returns-value]
    return found


@pytest.fixture
def serve(invoke: Invoke, found: list[ServedModels], tmp_path: Path) -> Serve:
    """serve("models: …", "--port", "1"): the models that would be launched."""

    def serve(text: str, *arguments: str) -> ServedModels:
        (tmp_path / "models.yaml").write_text(text)
        result = invoke("--models", str(tmp_path / "models.yaml"), *arguments)
        assert result.exit_code == 0, result.output
        return found[-1]

    return serve


TWO = """
models:
  - {name: chat, model_id: /chat, num_shard: 2, kv_memory: 1GiB, cuda_graphs: [1, 2]}
  - {name: vectors, model_id: /vectors, dtype: float32, pinned: true, deterministic: true}
"""


def test_each_model_has_the_settings_of_the_command_line_and_its_own(serve: Serve) -> None:
    models = serve(TWO, "--dtype", "bfloat16", "--max-concurrent-requests", "7", "--model-keep-alive", "9")
    first, [other] = models.first, models.others
    assert (first.served_name, first.model_id, first.num_shard, first.kv_memory, first.dtype, first.cuda_graphs) == (
        "chat", "/chat", 2, 1 << 30, "bfloat16", (1, 2))
    assert (other.config.served_name, other.config.model_id, other.config.num_shard, other.config.dtype,
            other.config.deterministic) == ("vectors", "/vectors", 1, "float32", True)
    assert (other.is_pinned, other.keep_alive, other.config.max_concurrent_requests) == (True, 9, 7)
    assert models.are_several


@pytest.mark.parametrize(("text", "arguments", "said"), [
    (TWO.replace("num_shard: 2", "port: 2"), (), "model chat: `port` is no setting of a model"),
    (TWO.replace("num_shard: 2", "shards: 2"), (), "model chat: `shards` is no setting of a model"),
    (TWO.replace("1GiB", "much"), (), "model chat: `kv_memory`: 'much' is not a number of bytes"),
    (TWO.replace("num_shard: 2", "num_shard: two"), (), "model chat: `num_shard`: 'two' is not a valid integer"),
    (TWO.replace("num_shard: 2", "num_shard: 0"), (), "model chat: `num_shard` cannot be < 1"),
    (TWO.replace("model_id: /vectors, ", ""), (), "model vectors: `model_id` is missing"),
    (TWO + "aliases: {x: other}", (), "`aliases`: x: there is no model other; there are chat, vectors"),
    (TWO, ("--api-workers", "2"), "`api_workers` must be 1 for a server of several models. Given: 2"),
    (TWO.replace("deterministic: true", "num_shard: 2"), ("--master-port", "29500"),
     "model vectors: `master_port` must be another one than that of chat. Given: 29500"),
    (TWO, ("--model-id", "/x"), "`model_id` and `models` can't be given together"),
])
def test_a_setting_that_is_wrong_is_refused_with_its_model(
    invoke: Invoke, tmp_path: Path, text: str, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "models.yaml").write_text(text)
    result = invoke("--models", str(tmp_path / "models.yaml"), *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


@pytest.mark.parametrize(("command", "arguments"), [
    (launcher.main, ("--model-id", "chat=/chat", "--model-id", "vectors=org/v=1", "--dtype", "float32")),
    (main, ("serve", "chat=/chat", "vectors=org/v=1", "--dtype", "float32")),
])
def test_models_are_named_on_the_command_line(
    found: list[ServedModels], command: click.Command, arguments: tuple[str, ...]
) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    first, [other] = found[0].first, found[0].others
    assert (first.served_name, first.model_id, other.config.served_name, other.config.model_id, other.config.dtype) == (
        "chat", "/chat", "vectors", "org/v=1", "float32")


@pytest.mark.parametrize(("place", "name"), [("chat=/x", "chat"), ("./a=b", None), ("/a=b", None), ("~/a=b", None)])
def test_a_lone_model_may_have_a_name_of_its_own(found: list[ServedModels], place: str, name: str | None) -> None:
    assert CliRunner().invoke(launcher.main, [], env={"MODEL_ID": place}).exit_code == 0
    assert (found[0].first.served_name, found[0].are_several) == (name, False)
    assert found[0].first.model_id == ("/x" if name else place)


def test_a_place_that_is_there_is_no_name(
    found: list[ServedModels], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b c").mkdir()
    assert CliRunner().invoke(main, ["serve"], env={"MODEL_ID": "a=b c"}).exit_code == 0
    assert (found[0].first.served_name, found[0].first.model_id) == (None, "a=b c")


def test_the_file_serves_by_either_command(found: list[ServedModels], tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(TWO)
    result = CliRunner().invoke(main, ["serve", "--models", str(tmp_path / "models.yaml")])
    assert result.exit_code == 0, result.output
    assert found[0].others[0].config.model_id == "/vectors"


@pytest.mark.parametrize(("places", "said"), [
    (("a=/x", "/y"), "`model_id`: of several models each must be NAME=PLACE. Given: /y"),
    (("a=/x", "a=/y"), "`model_id`: there are two models of the name a"),
    ((" a=/x", "b=/y"), "`model_id`: a model must have a `name`. Given: ' a'"),
])
def test_places_without_names_of_their_own_are_refused(places: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, ["serve", *places])
    assert (result.exit_code, said in " ".join(result.output.split())) == (2, True), result.output


def test_a_lone_model_is_served_as_ever(invoke: Invoke, found: list[ServedModels]) -> None:
    assert invoke("--model-id", "/x").exit_code == 0
    assert (found[0].first.model_id, found[0].first.served_name, found[0].are_several) == ("/x", None, False)


@dataclass(frozen=True)
class Placed:
    """Stands for a model whose files are found."""

    config: LauncherConfig
    num_bytes: int


@pytest.mark.parametrize(("most", "said"), [
    (None, None), (16, None), (12, "must be >= 13 bytes, for c and the models that are always loaded. Given: 12"),
    (8, "must be >= 9 bytes, for b"),
])
def test_every_model_has_room_beside_those_that_are_always_loaded(
    serve: Serve, most: int | None, said: str | None
) -> None:
    text = "models: [{name: a, model_id: /a}, {name: b, model_id: /b, pinned: true}, {name: c, model_id: /c}]"
    models = serve(text, *([] if most is None else ["--max-model-memory", str(most)]))
    first, *others = (Placed(config, size) for config, size in zip(
        [models.first, *(each.config for each in models.others)], (4, 5, 4), strict=True))
    with nullcontext() if said is None else pytest.raises(InvalidArgument, match=said):
        check_memory(models, first, others)  # type: ignore[arg-type]
