"""What was made for TGI runs on the image: compose files, the launcher of its integration tests, and clients."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from penstock.bench.programs.children import free_port
from tests.clients.environments import python_of
from tests.clients.test_clients import CLIENTS, PROGRAMS
from tests.deploy.containers import images
from tests.deploy.containers.container import Container, running
from tests.deploy.containers.engine import Engine
from tests.e2e.client import generate, many_clients
from tests.paths import DEMO_MODEL, ROOT

LAUNCHER = Path(__file__).with_name("tgi_launcher.py")
FORMS = ROOT / "tests/deploy/tgi_compose"
OF_TGI = re.compile(r"ghcr\.io/huggingface/text-generation-inference:\S+")


def cached(folder: Path, name: str) -> None:
    """Puts the demo model where TGI would have put a download of that name."""
    repository = folder / "hub" / f"models--{name.replace('/', '--')}"
    shutil.copytree(DEMO_MODEL, repository / "snapshots" / "0123abc")
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("0123abc")


@pytest.mark.parametrize(("form", "service", "port", "model"), [
    ("plain", "tgi", 8080, "HuggingFaceH4/zephyr-7b-beta"),
    ("reservations", "text-generation-inference", 8080, "mistralai/Mistral-7B-Instruct-v0.3"),
    ("shared_memory", "llm", 8000, "teknium/OpenHermes-2.5-Mistral-7B"),
])
async def test_a_compose_file_of_tgis_needs_another_image_line_alone(
    engine: Engine, tmp_path: Path, form: str, service: str, port: int, model: str
) -> None:
    folder = tmp_path / form
    shutil.copytree(FORMS / form, folder)
    cached(folder / "data", model)
    file = folder / "docker-compose.yml"
    text, count = OF_TGI.subn(images.SERVER, file.read_text())
    assert count == 1
    host = free_port()  # for the file's may be taken here
    text, count = re.subn(rf'(- "?|published: ){port}(?=[:\n])', rf"\g<1>{host}", text)
    assert count == 1
    file.write_text(without_gpus(text, folder / "data"))
    variables = {"CLIENT_IMAGE": images.build_standin(engine, "curl", base=images.SERVER),
                 "COMPOSE_PROJECT_NAME": f"penstock-test-{form}"}
    try:
        engine.compose(folder, "up", "--detach", **variables)
        container = Container(engine, engine.compose(folder, "ps", "--quiet", service, **variables), host)
        container.wait_until_ready()
        async with many_clients() as session:
            assert (await generate(session, container.url, "def open(path):", max_new_tokens=4)).ids
            async with session.get(f"{container.url}/info") as response:
                assert (await response.json())["model_id"] == model
        if form == "shared_memory":
            client = Container(engine, engine.compose(folder, "ps", "--quiet", "client", **variables), host)
            assert client.wait() == 0
            assert f'"model_id":"{model}"' in client.log()
    finally:
        engine.compose(folder, "down", "--volumes", "--timeout", "1", **variables)


def without_gpus(text: str, data: Path) -> str:
    """Returns the compose file for a machine without GPUs, and with a volume of the engine's at the folder."""
    if "nvidia" not in text:
        return text
    file = yaml.safe_load(text)
    for service in file["services"].values():
        service.pop("deploy", None)
        for volume in service["volumes"]:
            volume.update(type="bind", source=str(data))
    del file["volumes"]
    return yaml.safe_dump(file)


def test_the_launcher_of_tgis_tests_runs_the_image(engine: Engine, models: Path) -> None:
    variables = {"DOCKER_IMAGE": images.SERVER, "DOCKER_VOLUME": str(models), "DOCKER_DEVICES": "none"}
    succeed(python_of("text-generation"), LAUNCHER, "/data/demo", **engine.variables, **variables)


@pytest.fixture(scope="module")
def container(engine: Engine) -> Iterator[Container]:
    with running(engine, arguments=("--enable-prefill-logprobs", "--max-client-batch-size", "8")) as container:
        yield container


@pytest.mark.parametrize("client", ["text-generation", "huggingface-hub", "openai"])
def test_a_client_gets_its_answers(container: Container, client: str) -> None:
    [program] = [program for program, name in CLIENTS.items() if name == client]
    succeed(python_of(client), PROGRAMS / program, container.url, **os.environ)


def succeed(python: Path, *arguments: str | Path, **environment: str) -> None:
    """Runs a client's program, which says so when all has passed."""
    ended = subprocess.run([python, *arguments], capture_output=True, text=True, check=False, timeout=300,
                           env={name: value for name, value in environment.items() if name != "PYTHONPATH"})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.endswith("all passed\n"), ended.stdout
