"""The image is small, says what is in it, and runs wherever TGI's does."""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from openai import OpenAI
from packaging.utils import canonicalize_name

from penstock.bench.programs.children import free_port
from penstock.router.api.http import vendored
from tests.checkpoints.stand_in_hub import hub_with
from tests.deploy.containers import images
from tests.deploy.containers.container import Container, running
from tests.deploy.containers.engine import CommandError, Engine
from tests.e2e.client import generate, many_clients
from tests.paths import DEMO_MODEL, ROOT

GB = 1000**3
MB = 1000**2
CONFINED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


def of_image(engine: Engine, tag: str = images.SERVER) -> dict:
    [found] = json.loads(engine.docker("image", "inspect", tag))
    return found


async def answer(container: Container) -> str:
    async with many_clients() as session:
        answered = await generate(session, container.url, "def open(path):", max_new_tokens=8)
    assert len(answered.ids) == 8
    return answered.text


def test_it_is_small(engine: Engine) -> None:
    size = of_image(engine)["Size"]
    print(f"{size / MB:.0f} MB")
    assert size <= GB


def test_it_says_what_it_is(engine: Engine) -> None:
    config = of_image(engine)["Config"]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert config["Labels"]["org.opencontainers.image.version"] == version
    assert config["Entrypoint"] == ["tini", "--", "text-generation-launcher"]
    assert {"PORT=80", "HF_HOME=/data", "NVIDIA_VISIBLE_DEVICES=all"} <= set(config["Env"])
    assert list(config["ExposedPorts"]) == ["80/tcp"]
    assert not config.get("Volumes")


def test_its_bill_of_materials_has_what_the_lock_file_has(served: Container) -> None:
    bill = json.loads(served.run("cat", "/opt/penstock/sbom.json"))
    parts = {canonicalize_name(part["name"]): part["version"] for part in bill["components"]}
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", (ROOT / "deploy/requirements.txt").read_text(), re.MULTILINE))
    assert {name: parts.get(name) for name in locked} == locked
    assert "torch" in parts


def test_kernels_of_every_path_are_in_it(served: Container) -> None:
    libraries = served.run("sh", "-c", "ls /opt/penstock/own/penstock/kernels/lib").split()
    assert {name.split("-")[1] for name in libraries} == {"avx2", "avx512", "avx512_bf16"}


def test_libraries_of_the_pages_are_in_it(served: Container) -> None:
    folders = served.run("sh", "-c", "ls /opt/penstock/own/penstock/router/api/http/static/vendored").split()
    assert sorted(folders) == sorted(package.folder.name for package in vendored.PACKAGES)


def test_a_change_of_the_router_is_one_small_layer(engine: Engine, tmp_path: Path) -> None:
    context = tmp_path / "changed"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in files.stdout.strip("\0").split("\0"):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, context / name, follow_symlinks=False)
    with (context / "router/app.py").open("a") as file:
        file.write("\nCHANGED = True\n")
    images.build_server(engine, context=context, tag="penstock-test-changed")
    before, after = (of_image(engine, tag)["RootFS"]["Layers"] for tag in (images.SERVER, "penstock-test-changed"))
    assert [mine == yours for mine, yours in zip(before, after, strict=True)] == [True] * (len(before) - 1) + [False]
    sizes = engine.docker("history", "--human=false", "--format", "{{.Size}}", "penstock-test-changed").split()
    size = next(int(size) for size in sizes if size != "0")
    print(f"{size / MB:.1f} MB")
    assert size < of_image(engine, images.SERVER)["Size"] / 100


def test_no_file_gives_its_owners_rights(served: Container) -> None:
    assert served.run("find", "/", "-xdev", "-type", "f", "-perm", "/6000") == ""


async def test_it_answers_and_is_healthy_without_arguments(served: Container) -> None:
    assert await answer(served)
    assert served.run("penstock", "health")
    for _ in range(300):
        if served.state["Health"]["Status"] == "healthy":
            break
        await asyncio.sleep(0.1)
    assert served.state["Health"]["Status"] == "healthy"


@pytest.mark.parametrize("options", [
    ("--user", "12345:23456", *CONFINED, "--ipc", "none", "--env", "NUM_SHARD=2"),
    (*CONFINED, "--env", "MODEL_ID=/data/demo"),
    ("--user", "1000:1000", "--network", "host"),
], ids=["unknown-user", "root", "host-network"])
async def test_it_serves(engine: Engine, models: Path, options: tuple[str, ...]) -> None:
    """The folder belongs to who runs the tests: in CI to root, as TGI's volumes do, and so not to the other users."""
    inside = free_port() if "host" in options else 80
    options = ("--volume", f"{models}:/data", "--env", f"PORT={inside}", *options)
    with running(engine, *options, inside=inside) as container:
        assert await answer(container)
        assert container.run("penstock", "health")
        assert container.stop() == 0
        assert "Traceback" not in container.log()


def test_the_readmes_command_serves_the_chat_model(engine: Engine) -> None:
    command = re.search(r"^docker run (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)[1]
    subprocess.run([sys.executable, ROOT / "deploy/fetch_model.py", "chat", ROOT / ".venv/chat_model"], check=True)
    options, _, arguments = command.replace("$PWD", str(ROOT)).replace("--rm -p 8080:80 ", "").partition(" penstock ")
    with running(engine, *shlex.split(options), arguments=tuple(shlex.split(arguments))) as container:
        client = OpenAI(base_url=f"{container.url}/v1", api_key="-")
        reply = client.chat.completions.create(
            model="penstock", messages=[{"role": "user", "content": "What is the capital of France?"}], temperature=0)
    assert "Paris" in reply.choices[0].message.content


def shared(folder: Path) -> Path:
    """Lets all users read a folder."""
    folder.chmod(0o755)
    return folder


async def test_a_model_is_downloaded_into_a_volume_of_roots_and_served_from_it(engine: Engine, tmp_path: Path) -> None:
    volume = ("--volume", f"{shared(tmp_path)}:/data", "--network", "host")
    with hub_with({path.name: path.read_bytes() for path in DEMO_MODEL.iterdir()}) as hub:
        engine.docker("run", "--rm", *volume, "--env", f"HF_ENDPOINT={hub.url}", "--entrypoint", "penstock",
                      images.SERVER, "download", "org/model")
    port = free_port()
    options = (*volume, "--env", "HF_HUB_OFFLINE=1", "--env", f"PORT={port}", "--user", "1000:1000")
    with running(engine, *options, arguments=("--model-id", "org/model"), inside=port) as container:
        assert await answer(container)


@pytest.mark.parametrize(("options", "arguments", "sentence"), [
    (("--read-only",), (), "/tmp"),
    (("--pids-limit", "48"), (), "46 more processes and threads"),
    (("--user", "1000:1000", "--env", "HF_HUB_OFFLINE=1"), ("--model-id", "nobody/nothing"), "nobody/nothing"),
], ids=["nothing-writable", "few-tasks", "unknown-model"])
def test_what_it_cannot_do_with_is_said_in_a_sentence(
    engine: Engine, options: tuple[str, ...], arguments: tuple[str, ...], sentence: str,
) -> None:
    with running(engine, *options, arguments=arguments, is_awaited=False) as container:
        assert container.wait() != 0
        log = container.log()
    assert sentence in log
    assert "Traceback" not in log


def test_it_ends_when_it_is_told_so_while_it_starts(engine: Engine) -> None:
    with running(engine, is_awaited=False) as container:
        assert container.stop(grace=30) in (0, 143)
        assert "Serving at" not in container.log()


async def test_sagemakers_image_serves_by_its_variables(engine: Engine, models: Path) -> None:
    images.build_server(engine, tag="penstock-test-sagemaker", target="sagemaker")
    options = ("--volume", f"{models}:/opt/ml/model:ro", "--env", "HF_MODEL_ID=/opt/ml/model/demo",
               "--env", "SM_NUM_GPUS=2")
    with running(engine, *options, image="penstock-test-sagemaker", arguments=("serve",), inside=8080) as container:
        async with many_clients() as session:
            async with session.get(f"{container.url}/ping") as response:
                assert response.status == 200
            body = {"inputs": "def open(path):", "parameters": {"max_new_tokens": 4}}
            async with session.post(f"{container.url}/invocations", json=body) as response:
                [reply] = await response.json()
                assert reply["generated_text"]
        assert "Starting 2 shards" in container.log()
        with pytest.raises(CommandError, match="HF_MODEL_ID"):
            engine.docker("run", "--rm", "penstock-test-sagemaker", "serve", with_errors=True)
