"""A server that speaks what the Hugging Face Hub does when models are listed and downloaded."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

COMMIT = "c0ffee" * 6 + "cafe"
TOKEN = "hf_secret"


class Hub(ThreadingHTTPServer):
    """Has one model, `org/model`, with one revision; `org/gated` and all others are refused."""

    daemon_threads = True

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(files)
        self.cut_after: int | None = None
        """After so many bytes the connection of a large file breaks, again and again."""
        self.damaged = False
        """Whether the content of large files is another than is listed."""
        self.is_refusing = False
        """Whether every token is refused."""
        self.is_signing = False
        """Whether large files are elsewhere, at addresses with a signature."""
        self.signed_tokens: list[str | None] = []
        """The token that was sent with each address with a signature."""
        self.gets: list[tuple[str, str | None]] = []
        """Each file that was asked for, and from where on."""
        self.tokens: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_HEAD(self) -> None:
        name = self._file()
        if name is not None:
            self._head(200, len(self.server.files[name]), name)

    def do_GET(self) -> None:
        self.server.tokens.add(self.headers.get("Authorization"))
        path = urlsplit(self.path).path
        if self.server.is_refusing:
            self._refuse(401, "InvalidToken")
        elif path.startswith("/org/"):
            self._send_file()
        elif path.startswith("/api/models/org/gated"):
            self._refuse(403, "GatedRepo")
        elif not re.match("/api/models/org/model(/|$)", path):
            self._refuse(401, "RepoNotFound")
        elif "/revision/" in path and not path.endswith((f"/{COMMIT}", "/main")):
            self._refuse(404, "RevisionNotFound")
        elif "/tree/" in path:
            self._json([entry(name, content, "path", "oid", "oid") for name, content in self.server.files.items()])
        else:
            siblings = [entry(name, content, "rfilename", "blobId", "sha256")
                        for name, content in self.server.files.items()]
            self._json({"id": "org/model", "sha": COMMIT, "siblings": siblings})

    def log_message(self, *arguments: object) -> None:
        """Stay silent."""

    def _file(self) -> str | None:
        return urlsplit(self.path).path.removeprefix(f"/org/model/resolve/{COMMIT}/")

    def _send_file(self) -> None:
        name = self._file() or ""
        if self.server.is_signing and is_large(name):
            if "Signature=" not in self.path:
                self._redirect(f"http://localhost:{self.server.server_port}{self.path}?Signature=open-sesame")
                return
            self.server.signed_tokens.append(self.headers.get("Authorization"))
        content, wanted = self.server.files[name], self.headers.get("Range")
        self.server.gets.append((name, wanted))
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if is_large(name) and self.server.damaged:
            content = b"\0" * len(content)
        part = content[begin:]
        self._head(206 if wanted else 200, len(part), name)
        cut = self.server.cut_after
        if is_large(name) and cut is not None:
            self.wfile.write(part[:max(cut - begin, 0)])
            self.close_connection = True
        else:
            self.wfile.write(part)

    def _head(self, status: int, size: int, name: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        self.send_header("ETag", f'"{blob(name, self.server.files[name])}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()

    def _redirect(self, address: str) -> None:
        self.send_response(302)
        self.send_header("Location", address)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def is_large(name: str) -> bool:
    return name.endswith(".safetensors")


def blob(name: str, content: bytes) -> str:
    """The hash by which the Hub knows a content."""
    if is_large(name):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def entry(name: str, content: bytes, name_key: str, git_key: str, large_key: str) -> dict[str, object]:
    found: dict[str, object] = {name_key: name, "type": "file", "size": len(content),
                                git_key: hashlib.sha1(name.encode()).hexdigest()}
    if is_large(name):
        return found | {"lfs": {"size": len(content), large_key: blob(name, content), "pointerSize": 130}}
    return found | {git_key: blob(name, content)}


@contextmanager
def hub_with(files: Mapping[str, bytes]) -> Iterator[Hub]:
    with Hub(files) as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
