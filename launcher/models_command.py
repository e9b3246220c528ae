"""The command `penstock models`, which shows the models of a server of several and changes which are loaded."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import click

TIMEOUT_SECONDS = 600.0
"""How long a load or the requests before an unloading may take."""


@click.group()
def models() -> None:
    """Show and change which models a server has loaded."""


def _of_server(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say which server it is."""
    for option in (
        click.option("--api-key", envvar="API_KEY", show_envvar=True, help="A key of the server's. Give it by the "
                     "variable, since other users of the machine can see command lines."),
        click.option("--url", default="http://localhost:3000", show_default=True, help="Where the server is."),
    ):
        command = option(command)
    return command


@models.command("list")
@_of_server
@click.option("--json", "as_json", is_flag=True, help="Print the server's JSON.")
def list_models(url: str, api_key: str | None, as_json: bool) -> None:
    """Show the models of a server, with their states, and its aliases."""
    found = _ask(url, api_key, "/v1/models")
    if as_json:
        click.echo(json.dumps(found))
        return
    for model in found["data"]:
        click.echo(f"{model['id']:40} {_described(model)}")


def _described(model: Mapping[str, Any]) -> str:
    if targets := model.get("targets"):
        shadows = "".join(f"; shadow {name}: {share:g}" for name, share in (model.get("shadow") or {}).items())
        return "-> " + ", ".join(name if len(targets) == 1 else f"{name}: {weight:g}"
                                 for name, weight in targets.items()) + shadows
    if steps := model.get("steps"):
        return f"{model['state']}, steps ask {', '.join(steps)}"
    return str(model.get("state") or (f"adapter of {model['parent']}" if model.get("parent") else "ready"))


@models.command()
@_of_server
@click.argument("model")
def load(model: str, url: str, api_key: str | None) -> None:
    """Load MODEL, and wait until it is loaded."""
    _ask(url, api_key, "/v1/load_model", {"model": model})
    click.echo(f"{model} is loaded")


@models.command()
@_of_server
@click.argument("model")
def unload(model: str, url: str, api_key: str | None) -> None:
    """Unload MODEL, and wait until its requests have ended."""
    _ask(url, api_key, "/v1/unload_model", {"model": model})
    click.echo(f"{model} is unloaded")


@models.command()
@_of_server
@click.argument("alias")
@click.argument("targets", nargs=-1, metavar="[MODEL[=WEIGHT]]...")
@click.option("--shadow", "shadows", multiple=True, metavar="MODEL[=SHARE]", help="Send this share of the requests, "
              "from 0 to 1, to MODEL, too, whose answers are counted and thrown away.")
def alias(alias: str, targets: tuple[str, ...], shadows: tuple[str, ...], url: str, api_key: str | None) -> None:
    """Let ALIAS stand for MODEL, or for several models, each of which gets a share of the requests by its WEIGHT.

    The models are loaded first. Requests that run end on the models that they began on. Without a MODEL the alias is
    removed.
    """
    told = {"targets": dict(map(_target, targets)), "shadow": dict(map(_target, shadows))}
    _ask(url, api_key, "/v1/alias_model", {"alias": alias, **told})
    click.echo(f"{alias} {_described(told)}" if targets else f"{alias} is removed")


def _target(text: str) -> tuple[str, float]:
    name, has_weight, weight = text.rpartition("=")
    try:
        return (name, float(weight)) if has_weight else (text, 1.0)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not MODEL or MODEL=NUMBER", param_hint="MODEL") from None


def _ask(url: str, key: str | None, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Returns the server's answer. Raises click.ClickException, with the server's sentence if it gives one."""
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    content = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url.rstrip("/") + path, content, headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise click.ClickException(_sentence(error)) from error
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{url}: {getattr(error, 'reason', error)}") from error


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        told = json.loads(error.read())["error"]
        return str(told["message"] if isinstance(told, dict) else told)
    except (ValueError, KeyError, TypeError):
        return f"the server answered {error.code} {error.reason}"
