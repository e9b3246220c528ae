"""`penstock health` finds the server's port, and says in a sentence how the server is."""

import socket
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.launcher import health

PYTHON = "/opt/penstock/bin/python"
LAUNCHER = "/opt/penstock/bin/text-generation-launcher"


def make_proc(folder: Path, *command_lines: Sequence[str]) -> Path:
    """Makes what /proc has of process 1 and of the processes that it started."""
    for pid, words in enumerate(command_lines, 1):
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "cmdline").write_text("".join(f"{word}\0" for word in words))
    task = folder / "1/task/1"
    task.mkdir(parents=True)
    (task / "children").write_text(" ".join(map(str, range(2, len(command_lines) + 1))))
    return folder


@pytest.mark.parametrize(("command_lines", "expected"), [
    pytest.param([["tini", "--", "text-generation-launcher", "--port", "81"], [PYTHON, LAUNCHER, "--port", "81"]],
                 ["--port=81"], id="the image"),
    pytest.param([[PYTHON, LAUNCHER, "-p", "81", "--json-output", "--max-batch-prefill-tokens=4"]], ["--port=81"],
                 id="alone"),
    pytest.param([["tini", "--", "entrypoint.sh", "serve"],
                  [PYTHON, LAUNCHER, "--port", "8080", "--hostname", "::", "--ssl-certfile", "a"]],
                 ["--port=8080", "--hostname=::", "--ssl-certfile=a"], id="by a script"),
    pytest.param([[PYTHON, "/bin/penstock", "serve", "a model", "--port=82"]], ["--port=82"], id="penstock serve"),
    pytest.param([["systemd"], [PYTHON, LAUNCHER, "--port", "81"], [PYTHON, LAUNCHER, "--port", "82"]], [],
                 id="two servers"),
    pytest.param([["systemd"], [PYTHON, "/bin/penstock", "bench"]], [], id="no server"),
])
def test_the_server_s_own_command_line_counts(
    tmp_path: Path, command_lines: list[list[str]], expected: list[str]
) -> None:
    assert health.where_served(health.server_arguments(make_proc(tmp_path, *command_lines))) == expected


def test_without_proc_nothing_is_found(tmp_path: Path) -> None:
    assert health.server_arguments(tmp_path) == ()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = getattr(self.server, "status", 200) if self.path == "/health" else 404
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"unhealthy" if status == 503 else b"")

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


@pytest.fixture(autouse=True)
def no_other_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides a server that process 1 of this machine may have, for the command alone."""
    server_arguments = health.server_arguments
    monkeypatch.setattr(health, "server_arguments", lambda *proc: server_arguments(*proc) if proc else ())


@pytest.fixture
def peer() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(health.command, arguments, env={"PORT": None, "HOSTNAME": None, **environment})


def test_a_healthy_server(peer: HTTPServer) -> None:
    port = str(peer.server_port)
    for result in (ask("--port", port), ask(PORT=port), ask(PORT=port, HOSTNAME="5a1c2e3f")):
        assert (result.exit_code, result.output.strip()) == (0, f"the server at 0.0.0.0 port {port} is healthy")


def test_an_unhealthy_server(peer: HTTPServer) -> None:
    peer.status = 503  # type: ignore[attr-defined]
    result = ask("--port", str(peer.server_port))
    assert result.exit_code == 1
    assert "is not healthy, status 503: unhealthy" in result.output


def test_no_server() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        result = ask("--port", str(taken.getsockname()[1]))
    assert result.exit_code == 1
    assert "no server answers at 0.0.0.0 port" in result.output


def test_a_server_that_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        result = ask("--port", str(silent.getsockname()[1]), "--timeout", "0.1")
    assert result.exit_code == 1
    assert "timed out" in result.output
