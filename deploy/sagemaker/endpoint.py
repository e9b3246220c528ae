"""Makes an endpoint on Amazon SageMaker, asks it, and deletes it. An example, which needs boto3 and an AWS account.

    docker build --target sagemaker --build-arg VARIANT=cuda -t REGISTRY/penstock:sagemaker . && docker push …
    python endpoint.py create chat --image REGISTRY/penstock:sagemaker --role ARN --model Qwen/Qwen2.5-7B-Instruct
    python endpoint.py ask chat "Once upon a time"
    python endpoint.py delete chat

The image's entry point takes SageMaker's names: HF_MODEL_ID, HF_MODEL_REVISION, SM_NUM_GPUS (the instance's GPUs, each
of which runs a shard). Every other setting has the launcher's name, as in `--set MAX_TOTAL_TOKENS=8192`.
"""

import argparse
import json
from typing import Any

STARTUP_SECONDS = 1800
"""How long the container may download and load its model before SageMaker gives it up."""


def model(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the request `CreateModel`."""
    environment = {"HF_MODEL_ID": arguments.model, "STRICT_STREAMING_ERRORS": "true", "JSON_OUTPUT": "true"}
    if arguments.gpus:
        environment["SM_NUM_GPUS"] = str(arguments.gpus)
    environment |= dict(setting.split("=", 1) for setting in arguments.set)
    return {"ModelName": arguments.name, "ExecutionRoleArn": arguments.role,
            "PrimaryContainer": {"Image": arguments.image, "Environment": environment}}


def endpoint_config(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the request `CreateEndpointConfig`."""
    return {"EndpointConfigName": arguments.name, "ProductionVariants": [{
        "VariantName": "all", "ModelName": arguments.name, "InstanceType": arguments.instance,
        "InitialInstanceCount": 1, "ContainerStartupHealthCheckTimeoutInSeconds": STARTUP_SECONDS,
        "ModelDataDownloadTimeoutInSeconds": STARTUP_SECONDS}]}


def create(arguments: argparse.Namespace) -> None:
    """Makes the endpoint and waits until it answers."""
    client = _client("sagemaker")
    client.create_model(**model(arguments))
    client.create_endpoint_config(**endpoint_config(arguments))
    client.create_endpoint(EndpointName=arguments.name, EndpointConfigName=arguments.name)
    client.get_waiter("endpoint_in_service").wait(EndpointName=arguments.name)


def ask(arguments: argparse.Namespace) -> None:
    """Prints the stream of events that answers a prompt. A body with `messages` would be a chat."""
    body = {"inputs": arguments.prompt, "parameters": {"max_new_tokens": 64}, "stream": True}
    answer = _client("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName=arguments.name, ContentType="application/json", Body=json.dumps(body))
    for event in answer["Body"]:
        print(event["PayloadPart"]["Bytes"].decode(errors="replace"), end="", flush=True)


def delete(arguments: argparse.Namespace) -> None:
    """Deletes the endpoint and what was made for it."""
    client = _client("sagemaker")
    client.delete_endpoint(EndpointName=arguments.name)
    client.delete_endpoint_config(EndpointConfigName=arguments.name)
    client.delete_model(ModelName=arguments.name)


def _client(service: str) -> Any:
    import boto3

    return boto3.client(service)


def _setting(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"a setting has the form NAME=VALUE, such as DTYPE=float16, not {text!r}")
    return text


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    commands = argparse.ArgumentParser(description="Makes an endpoint on Amazon SageMaker, asks it, and deletes it.")
    each = commands.add_subparsers(required=True)
    for verb, run in ("create", create), ("ask", ask), ("delete", delete):
        command = each.add_parser(verb, help=run.__doc__)
        command.set_defaults(run=run)
        command.add_argument("name", help="The endpoint's name.")
        if verb == "ask":
            command.add_argument("prompt")
        if verb == "create":
            command.add_argument("--image", required=True, help="The SageMaker image in a registry of yours.")
            command.add_argument("--role", required=True, help="ARN of the role that the endpoint runs with.")
            command.add_argument("--model", required=True, help="A name on the Hugging Face Hub.")
            command.add_argument("--instance", default="ml.g5.2xlarge", help="Default: ml.g5.2xlarge, with one GPU.")
            command.add_argument("--gpus", type=int, default=1, help="GPUs of the instance; 0 for none. Default: 1.")
            command.add_argument("--set", action="append", default=[], type=_setting, metavar="NAME=VALUE",
                                 help="A setting of the launcher.")
    return commands


if __name__ == "__main__":
    chosen = parser().parse_args()
    chosen.run(chosen)
