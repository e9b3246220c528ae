"""`/v1/files` over HTTP, driven by OpenAI's client."""

import asyncio
import io
from asyncio import StreamReader
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import openai
import pytest

from penstock.router.api.http.access import Access
from penstock.router.api.openai import files, upload
from penstock.router.api.openai.storage import DOWNLOADS, UPLOADS
from penstock.router.api.store_routes import STORE_ROUTES
from penstock.router.keys import Keys
from penstock.router.store.records import PART_BYTES
from tests.eventually import until
from tests.router.api.conftest import Server
from tests.router.batches.servers import BatchServer, StartBatches, lines


@pytest.fixture
async def batches(start_batches: StartBatches) -> BatchServer:
    return await start_batches(has_runner=False)


async def test_the_whole_life_of_a_file(batches: BatchServer) -> None:
    client, content = batches.client, bytes(range(256)) * 10_000
    file = await batches.upload(content, "näme.jsonl")
    assert (file.object, file.bytes, file.filename, file.purpose) == ("file", len(content), "näme.jsonl", "batch")
    assert file.expires_at == file.created_at + 30 * 24 * 3600
    assert await client.files.retrieve(file.id) == file
    assert (await client.files.content(file.id)).content == content
    other = await client.files.create(
        file=b"x", purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})
    assert other.expires_at == other.created_at + 3600
    assert [found.id async for found in client.files.list(limit=1)] == [other.id, file.id]
    assert [found.id async for found in client.files.list(order="asc", purpose="batch")] == [file.id, other.id]
    assert [found async for found in client.files.list(purpose="batch_output")] == []
    deleted = await client.files.delete(file.id)
    assert (deleted.id, deleted.deleted) == (file.id, True)
    for ask in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError, match=f"There is no file `{file.id}`"):
            await ask(file.id)


async def test_an_empty_file(batches: BatchServer) -> None:
    file = await batches.upload(b"")
    assert (await batches.client.files.content(file.id)).content == b""


async def test_the_head_of_a_file_has_no_body(batches: BatchServer) -> None:
    """What comes next on the connection is the next response, whatever the file has."""
    file = await batches.upload(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong")
    url = batches.server.client.make_url("/")
    reader, writer = await asyncio.open_connection(url.host, url.port)
    for method, path in (("HEAD", f"/v1/files/{file.id}/content"), ("GET", "/v1/files/none")):
        writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 OK" in head
    assert f"Content-Length: {file.bytes}\r\n".lower().encode() in head.lower()
    assert (await reader.readuntil(b"\r\n")).split()[1] == b"404"
    writer.close()
    await writer.wait_closed()


async def test_a_file_that_is_deleted_while_it_is_read(
    batches: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client hears that the file breaks off, and nothing else is taken for its rest."""
    file, files = await batches.upload(b"x" * 3 * PART_BYTES), batches.store.files
    part = files.part

    async def part_before_the_deletion(id: str, number: int) -> bytes | None:
        if number == 2:
            await files.delete(id)
        return await part(id, number)

    monkeypatch.setattr(files, "part", part_before_the_deletion)
    response = await batches.server.client.get(f"/v1/files/{file.id}/content")
    with pytest.raises(aiohttp.ClientPayloadError):
        async with asyncio.timeout(60):
            await response.read()


async def test_the_input_of_a_batch_is_not_deleted(batches: BatchServer) -> None:
    batch = await batches.create(lines("a"))
    with pytest.raises(openai.ConflictError, match="is the input of the batch"):
        await batches.client.files.delete(batch.input_file_id)


def form(*fields: tuple[str, str], boundary: str = "b") -> bytes:
    parts = [f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
             for name, value in fields]
    return "".join([*parts, f"--{boundary}--\r\n"]).encode()


GOOD = (("purpose", "batch"), ("file", "x"))


FORMS = (
    (form(("purpose", "batch")), "`file` is missing from the form"),
    (form(("file", "x")), "`purpose` is missing from the form"),
    (form(("purpose", "vision"), ("colour", "y")),
     "`purpose` must be batch, for no route reads files of another one. Given: vision"),
    (form(*GOOD, ("file", "y")), "`file` must be one file. Given: several"),
    (form(*GOOD, ("colour", "y")), "the form must have each of file, purpose, expires_after[anchor], "
     "expires_after[seconds] at most once, and no other field. Given: colour"),
    (form(*GOOD, ("purpose", "batch")), "the form must have each of file, purpose"),
    (form(("purpose", "x" * 2000)), "`purpose` must have at most 1000 bytes. Given: more"),
    (form(*GOOD, ("expires_after[seconds]", "3600")),
     "`expires_after[anchor]` must be created_at. Given: nothing"),
    (form(*GOOD, ("expires_after[anchor]", "created_at"), ("expires_after[seconds]", "5")),
     "`expires_after[seconds]` must be from 3600, an hour, to 2592000, 30 days. Given: 5"),
    (form(*GOOD, ("expires_after[anchor]", "created_at"), ("expires_after[seconds]", "x")),
     "`expires_after[seconds]` must be an integer. Given: x"),
    (form(*GOOD, ("expires_after[anchor]", "created_at"), ("expires_after[seconds]", "0000000000000000360099")),
     "`expires_after[seconds]` must be an integer. Given: 0000000000000000360099"),
    (form(*GOOD).replace(b'name="file"', b'name="file"\r\ncontent-transfer-encoding: base64'),
     "`file` must come without the header `Content-Transfer-Encoding`. Given: base64"),
    (b"nonsense", "Failed to read the form"),
    (form(*GOOD)[:-8], "Failed to read the form"),
)


def with_header(header: bytes) -> bytes:
    return b"--b\r\n" + header + b"\r\n\r\nx\r\n--b--\r\n"


BROKEN_FORMS = (
    (with_header(b"no colon"), "Failed to read the form"),
    (with_header(b"x: " + b"y" * 100_000), "Failed to read the form"),
    (with_header(b"\r\n".join(b"x-%d: y" % number for number in range(1000))), "Failed to read the form"),
    (form(("_charset_", "x" * 100)), "Failed to read the form"),
    (with_header(b'content-disposition: form-data; name="\xff"'), "and no other field. Given: \\udcff"),
    (with_header(b'content-disposition: form-data; name="purpose"').replace(b"\r\nx\r\n", b"\r\n\xff\r\n"),
     "`purpose` must be UTF-8. Given: \\xff"),
)


async def test_forms_that_are_refused(batches: BatchServer) -> None:
    for content, message in FORMS + BROKEN_FORMS:
        response = await batches.server.client.post(
            "/v1/files", data=content, headers={"content-type": "multipart/form-data; boundary=b"})
        assert response.status == 400
        assert message in (await response.json())["error"]["message"]
    assert (await batches.client.files.list()).data == []


@asynccontextmanager
async def half_an_upload(batches: BatchServer) -> AsyncIterator[StreamReader]:
    """Sends the beginning of a form, and yields the reader of the answer."""
    url = batches.server.client.make_url("/")
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n"
                 b"content-length: 1000\r\n\r\n" + form(*GOOD)[:-8])
    await writer.drain()
    yield reader
    writer.close()
    await writer.wait_closed()


async def test_so_many_files_are_received_at_once(
    batches: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfers = asyncio.Semaphore(1)
    batches.server.client.app._state[UPLOADS] = transfers
    monkeypatch.setattr(files, "TURN_SECONDS", 0.01)
    async with half_an_upload(batches):
        await until(transfers.locked)
        with pytest.raises(openai.APIStatusError, match="as many files are sent or received as may be") as caught:
            await batches.client.with_options(max_retries=0).files.create(file=b"x", purpose="batch")
        assert (caught.value.status_code, caught.value.response.headers["retry-after"]) == (503, "5")
    await until(lambda: not transfers.locked())
    file = await batches.upload(b"x" * (PART_BYTES + 1))
    assert len((await batches.client.files.content(file.id)).content) == file.bytes
    await until(lambda: not transfers.locked())


async def test_so_many_files_are_sent_at_once(batches: BatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside uploads, however slow these are; and nobody waits for a place without an end."""
    file = await batches.upload(b"x")
    downloads = batches.server.client.app._state[DOWNLOADS] = asyncio.Semaphore(1)
    batches.server.client.app._state[UPLOADS] = asyncio.Semaphore(0)
    assert (await batches.client.files.content(file.id)).content == b"x"
    monkeypatch.setattr(files, "TURN_SECONDS", 0.01)
    async with downloads:
        with pytest.raises(openai.APIStatusError, match="as many files are sent or received as may be") as caught:
            await batches.client.with_options(max_retries=0).files.content(file.id)
    assert caught.value.status_code == 503


async def test_an_upload_has_an_end(batches: BatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "UPLOAD_SECONDS", 0.01)
    async with half_an_upload(batches) as reader:
        assert b" 408 " in await reader.readuntil(b"\r\n")


async def test_pages_of_other_sites_need_a_key_or_a_list(start_batches: StartBatches) -> None:
    """Their forms are sent without being asked about, so that it is not enough to hide the answers."""
    origin = "https://page.example"
    for access, *statuses in ((Access(), 403, 403), (Access(allowed_origins=(origin,)), 200, 403),
                              (Access(allowed_origins=("*",)), 200, 200), (Access(Keys(["key"])), 200, 200)):
        client = (await start_batches(has_runner=False, access=access)).server.client
        own = f"http://{client.host}:{client.port}"
        for site, wanted in zip((origin, "null", own), (*statuses, 200), strict=True):
            response = await client.post(
                "/v1/files", data={"purpose": "batch", "file": io.BytesIO(b"x")},
                headers={"origin": site, "authorization": "Bearer key"})
            assert response.status == wanted
            if wanted == 403:
                assert (await response.json())["error"]["code"] == "foreign_page"


async def test_other_content_types_are_refused(batches: BatchServer) -> None:
    response = await batches.server.post("/v1/files", {"file": "x"})
    assert response.status == 415
    assert "`Content-Type: multipart/form-data`" in (await response.json())["error"]["message"]


async def test_a_file_that_is_too_long(batches: BatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_FILE_BYTES", 2_000_000)
    await batches.upload(b"x" * 2_000_000)
    with pytest.raises(openai.APIStatusError, match="`file` must have at most 2000000 bytes") as caught:
        await batches.upload(b"x" * 2_000_001)
    assert caught.value.status_code == 413
    monkeypatch.setattr(batches.store.files, "writing", None)  # what says that it is too long is not read at all
    with pytest.raises(openai.APIStatusError, match="`file` must have at most 2000000 bytes") as caught:
        await batches.upload(b"x" * 2_100_000)
    assert caught.value.status_code == 413


QUESTIONS = (
    ("/v1/files?limit=0", 400, "`limit` must be an integer from 1 to 10000. Given: 0"),
    ("/v1/files?limit=x", 400, "`limit` must be an integer from 1 to 10000. Given: x"),
    ("/v1/files?limit=0000000001000000", 400, "`limit` must be an integer from 1 to 10000. Given: 0000000001000000"),
    (f"/v1/files?limit={'9' * 5000}", 400, f"`limit` must be an integer from 1 to 10000. Given: {'9' * 40}"),
    ("/v1/files?order=up", 400, "`order` must be asc or desc. Given: up"),
    ("/v1/files?after=none", 404, "There is no file `none`"),
    ("/v1/files?purpose=none", 400, "`purpose` must be batch or batch_output. Given: none"),
    ("/v1/files?colour=red", 400, "the parameters must be of limit, after, purpose, order. Given: colour"),
    ("/v1/batches?order=asc", 400, "the parameters must be of limit, after. Given: order"),
    ("/v1/files/a%00b", 404, "There is no file"),
    ("/v1/batches?limit=101", 400, "`limit` must be an integer from 1 to 100. Given: 101"),
    ("/v1/batches?after=a%00b", 404, "There is no batch"),
    ("/v1/batches/none", 404, "There is no batch `none`"),
)


async def test_questions_that_are_refused(batches: BatchServer) -> None:
    for path, status, message in QUESTIONS:
        response = await batches.server.client.get(path)
        assert response.status == status
        assert message in (await response.json())["error"]["message"]


BATCHES: tuple[tuple[dict[str, object], int, str], ...] = (
    ({"input_file_id": "none"}, 404, "There is no file `none`"),
    ({"input_file_id": "a\0b"}, 404, "There is no file"),
    ({"endpoint": "/v1/images"}, 400,
     "`endpoint` must be one of /v1/chat/completions, /v1/completions, /v1/responses, "
     "/v1/embeddings. Given: /v1/images"),
    ({"completion_window": "x"}, 400, "`completion_window` must be a number of seconds, minutes, hours or days, such "
     "as 24h, of at most 30d. Given: x"),
    ({"completion_window": "31d"}, 400, "of at most 30d. Given: 31d"),
    ({"metadata": dict.fromkeys("abcdefghijklmnopq", "")}, 400, "`metadata` must have at most 16 pairs. Given: 17"),
    ({"metadata": {"k" * 65: "v"}}, 400, "`metadata` must have keys of at most 64 characters and values of at most 512."
     " Given: 65 and 1"),
    ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, 400,
     "`output_expires_after.seconds` must be from 3600"),
    ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, 400, "output_expires_after.anchor: invalid value"),
    ({"input_file_id": 5}, 400, "input_file_id: invalid type: integer `5`, expected a string"),
)


async def test_batches_that_are_refused(batches: BatchServer) -> None:
    file = await batches.upload(lines("a"))
    good = {"input_file_id": file.id, "endpoint": "/v1/completions", "completion_window": "24h"}
    for fields, status, message in BATCHES:
        response = await batches.server.post("/v1/batches", good | fields)
        assert response.status == status
        assert message in (await response.json())["error"]["message"]


async def test_only_who_has_a_key_may_ask(start_batches: StartBatches) -> None:
    batches = await start_batches(has_runner=False, access=Access(Keys(["secret"])))
    for ask in (batches.client.files.list(), batches.client.batches.list(), batches.client.files.delete("a"),
                batches.client.files.content("a"), batches.client.batches.cancel("a")):
        with pytest.raises(openai.AuthenticationError):
            await ask
    response = await batches.server.client.get("/v1/files", headers={"authorization": "Bearer secret"})
    assert response.status == 200


async def test_a_server_without_a_store(server: Server) -> None:
    for route in STORE_ROUTES:
        response = await server.client.request(route.method, route.path.format(file="a", batch="a"))
        assert response.status == 501
        assert (await response.json())["error"] == {
            "message": "this server keeps no files, batches and responses: that takes --data-dir or --database-url",
            "type": "server_error", "param": None, "code": "no_store"}
