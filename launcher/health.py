"""The command `penstock health`: asks the server on this machine whether it can answer."""

import http.client
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from penstock.launcher.options import OPTIONS

PROC = Path("/proc")
NAMED = ("port", "hostname", "ssl_certfile")
"""The server's options that tell where it listens."""
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where to ask a server that listens at all addresses."""


def health(port: int, hostname: str, ssl_certfile: Path | None, timeout: float) -> None:
    """Ask the server on this machine whether it can answer; exit with 0 if it can, and else with 1.

    It is asked at the port that the same options and variables give the server. Where process 1, as in a container, is
    the server or has started it, the server's own command line counts, too.
    """
    connection = _connection(ANY_ADDRESS.get(hostname, hostname), port, ssl_certfile is not None, timeout)
    where = f"{hostname} port {port}"
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise click.ClickException(f"no server answers at {where}: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise click.ClickException(f"the server at {where} is not healthy, status {answer.status}: {text}")
    click.echo(f"the server at {where} is healthy")


class HealthCommand(click.Command):
    """Takes, before its own arguments, those of the server that process 1 is or has started."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*where_served(server_arguments()), *args])


def server_arguments(proc: Path = PROC) -> Sequence[str]:
    """Returns the arguments of the server that process 1 is or has started; none if there is not exactly one."""
    found = [arguments for pid in _processes(proc) if (arguments := _arguments(_command_line(proc, pid))) is not None]
    return found[0] if len(found) == 1 else ()


def where_served(arguments: Sequence[str]) -> list[str]:
    """Returns those of a server's arguments that tell where it listens, as `--name=value`."""
    server = click.Command("server", params=[option for option in OPTIONS if isinstance(option, click.Option)])
    given, _, _ = server.make_parser(click.Context(server, ignore_unknown_options=True)).parse_args([*arguments])
    return [f"--{name.replace('_', '-')}={given[name]}" for name in NAMED if name in given]


def _processes(proc: Path) -> Iterator[int]:
    """Yields process 1 and the processes that it has started."""
    try:
        children = (proc / "1/task/1/children").read_text().split()
    except OSError:
        children = []
    yield from (1, *map(int, children))


def _command_line(proc: Path, pid: int) -> list[str]:
    try:
        return (proc / str(pid) / "cmdline").read_text(errors="surrogateescape").rstrip("\0").split("\0")
    except OSError:
        return []


def _arguments(command_line: Sequence[str]) -> Sequence[str] | None:
    """Returns the arguments behind the server's name in a Python process's command line; None if it runs another
    program."""
    words = [Path(word).name for word in command_line[:2]]
    if "text-generation-launcher" in words:
        return command_line[words.index("text-generation-launcher") + 1:]
    if "penstock" in words and (rest := command_line[words.index("penstock") + 1:]) and rest[0] == "serve":
        return rest[1:]
    return None


def _connection(host: str, port: int, is_tls: bool, timeout: float) -> http.client.HTTPConnection:
    """Returns a connection to this machine's own server, whose certificate is for the name that others know it by."""
    if not is_tls:
        return http.client.HTTPConnection(host, port, timeout=timeout)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


command = HealthCommand(
    "health", callback=health, help=health.__doc__,
    params=[*(option for option in OPTIONS if option.name in NAMED),
            click.Option(["--timeout"], type=click.FloatRange(0, min_open=True), default=4.0, show_default=True,
                         help="Seconds to wait for an answer.")])
