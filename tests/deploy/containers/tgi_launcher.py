"""What the launcher of TGI's integration tests does with the image that DOCKER_IMAGE names: `tgi_launcher.py MODEL`.

Runs in the environment of the client text-generation. As there, DOCKER_VOLUME is the folder for /data, and
DOCKER_DEVICES is `none` without GPUs. The engine's own client starts and ends the container; it is ready when a request
is answered.
"""

import asyncio
import os
import socket
import sys

import docker
from aiohttp import ClientConnectorError, ClientOSError, ServerDisconnectedError
from text_generation import AsyncClient

SECONDS = 60


async def wait_until_ready(container: docker.models.containers.Container, client: AsyncClient) -> None:
    for _ in range(SECONDS):
        container.reload()
        assert container.status in ("running", "created"), container.logs().decode()
        try:
            await client.generate("test")
            return
        except (ClientConnectorError, ClientOSError, ServerDisconnectedError):
            await asyncio.sleep(1)
    raise TimeoutError(container.logs().decode())


async def ask(client: AsyncClient) -> None:
    """Asks as TGI's tests of a model do: by itself with the prompt's tokens, and several at once."""
    alone = await client.generate("def open(path):", max_new_tokens=10, decoder_input_details=True)
    assert alone.details.generated_tokens == 10
    together = await asyncio.gather(*(
        client.generate("def open(path):", max_new_tokens=10, decoder_input_details=True) for _ in range(4)))
    assert {answer.generated_text for answer in together} == {alone.generated_text}


def main(model: str) -> None:
    assert os.environ["DOCKER_DEVICES"] == "none"
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    container = docker.from_env().containers.run(
        os.environ["DOCKER_IMAGE"], command=["--model-id", model, "--env", "--num-shard", "2"], detach=True,
        environment={"LOG_LEVEL": "info,text_generation_router=debug", "PREFILL_CHUNKING": "1",
                     "USE_FLASH_ATTENTION": "false"},
        volumes=[f"{os.environ['DOCKER_VOLUME']}:/data"], ports={"80/tcp": port}, shm_size="1G",
        healthcheck={"timeout": 180 * 10**9, "retries": 2})
    try:
        client = AsyncClient(f"http://localhost:{port}")
        asyncio.run(wait_until_ready(container, client))
        asyncio.run(ask(client))
        container.stop()
        assert container.wait()["StatusCode"] == 0
    finally:
        container.remove(force=True, v=True)
    print("all passed")


if __name__ == "__main__":
    main(sys.argv[1])
