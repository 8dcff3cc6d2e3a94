"""Files and models under /v1, as the `openai` package asks for them."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
from openai import OpenAI
from openai.types import FileObject
from sqlalchemy import text

from jobs.errors import PayloadLost
from jobs.models.builtin_models import SAMPLES
from jobs.usecases import tenant_files
from ops.supervisor.platform import Platform
from tests.support.children import pid_of
from tests.support.clients import http_of, repeated
from tests.support.packages import openai_batch
from tests.support.packages import openai_of as client_of
from tests.support.platforms import CLOSED, transaction
from tests.support.wait import eventually

MOST_MB = 64
PLATFORM = CLOSED


def upload(
    client: OpenAI, content: bytes = b"{}\n", name: str = "a.jsonl", **more: Any
) -> FileObject:
    return client.files.create(file=(name, content), **{"purpose": "batch", **more})


def code_of(error: openai.APIError) -> str | None:
    assert error.type
    return error.code


def test_a_file_comes_back_as_it_was_sent(client: OpenAI) -> None:
    content = bytes(range(256)) * 5000 + b"\r\n--not the boundary\r\n"
    made = upload(client, content, "höhe 1.bin", purpose="user_data")
    assert (made.bytes, made.filename, made.purpose) == (len(content), "höhe 1.bin", "user_data")
    assert (made.object, made.status, made.expires_at) == ("file", "processed", None)
    assert client.files.retrieve(made.id) == made
    answer = client.files.content(made.id)
    assert answer.content == content
    assert answer.response.headers["content-length"] == str(len(content))
    for small in (b"", b"x", b"\r\n", b"\r\n--"):
        assert client.files.content(upload(client, small).id).content == small


def test_a_file_for_a_batch_goes_after_thirty_days_or_when_it_was_told(client: OpenAI) -> None:
    made = upload(client)
    assert made.expires_at == made.created_at + 30 * 86_400
    asked: Any = {"anchor": "created_at", "seconds": 3600}
    made = upload(client, expires_after=asked, purpose="assistants")
    assert made.expires_at == made.created_at + 3600


def is_gone(platform: Platform, file_id: str) -> bool:
    """Returns True if a file's bytes and its row are gone."""
    id = tenant_files.ids.parse("file", file_id)
    assert id is not None
    try:
        tenant_files.blob_store(platform.settings).get(tenant_files.blob_key(id))
    except PayloadLost:
        with transaction(platform) as tx:
            left = tx.scalar(text("SELECT count(*) FROM files WHERE id = :id"), {"id": id})
        return left == 0
    return False


def test_what_has_expired_is_gone_with_its_bytes(platform: Platform, client: OpenAI) -> None:
    made, kept = upload(client, b"some bytes"), upload(client)
    with transaction(platform) as tx:
        past = text("UPDATE files SET expires_at = now() WHERE id = :id")
        tx.execute(past, {"id": tenant_files.ids.parse("file", made.id)})
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)
    assert made.id not in {file.id for file in client.files.list()}
    eventually(lambda: is_gone(platform, made.id))
    assert client.files.content(kept.id).content == b"{}\n"


def test_own_files_are_listed_by_pages_in_either_order(platform: Platform, client: OpenAI) -> None:
    upload(client)  # which is another tenant's
    with client_of(platform, "files-lists") as client:
        ids = [upload(client, purpose=purpose).id for purpose in ("batch", "vision") * 4]
        assert [file.id for file in client.files.list(limit=3)] == ids[::-1]
        assert [file.id for file in client.files.list(limit=3, order="asc")] == ids
        assert [file.id for file in client.files.list(purpose="vision")] == ids[:0:-2]
        page = client.files.list(limit=8)
        assert (page.has_more, len(page.data)) == (False, 8)
        assert [file.id for file in client.files.list(after=ids[1])] == [ids[0]]


def test_a_deleted_file_is_gone_with_its_bytes(platform: Platform, client: OpenAI) -> None:
    made = upload(client)
    done = client.files.delete(made.id)
    assert (done.id, done.deleted, done.object) == (made.id, True, "file")
    for ask in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            ask(made.id)
    eventually(lambda: is_gone(platform, made.id))


def test_errors_are_worded_as_openais(client: OpenAI, platform: Platform) -> None:
    with client_of(platform, "readers", scopes=frozenset({"read"})) as reader:
        with pytest.raises(openai.PermissionDeniedError) as denied:
            upload(reader)
        assert code_of(denied.value) == "insufficient_permissions"
    with pytest.raises(openai.AuthenticationError) as unknown:
        client.with_options(api_key="sk-wrong").files.list()
    assert code_of(unknown.value) == "invalid_api_key"
    assert unknown.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as wrong:
        upload(client, purpose="no-such-purpose")
    assert (code_of(wrong.value), wrong.value.param) == ("invalid_value", "purpose")
    with pytest.raises(openai.BadRequestError, match="1024 at most"):
        upload(client, name="a" * 1025)
    soon: Any = {"anchor": "created_at", "seconds": 1}
    with pytest.raises(openai.BadRequestError) as early:
        upload(client, expires_after=soon)
    assert early.value.param == "expires_after.seconds"
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("no-such-model")
    assert (code_of(missing.value), missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError) as nowhere:
        client.get("/no/such/route", cast_to=object)
    assert nowhere.value.type == "invalid_request_error"


@pytest.mark.parametrize("size", [(MOST_MB << 20) + 1, (MOST_MB << 20) + 100_000])
def test_a_file_that_is_too_large_is_refused(client: OpenAI, size: int) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        upload(client, b"x" * size)
    assert (caught.value.status_code, caught.value.type) == (413, "invalid_request_error")
    assert code_of(caught.value) == "too_large"
    made = upload(client, b"x" * (MOST_MB << 20))
    assert made.bytes == MOST_MB << 20
    client.files.delete(made.id)


FORM = {"Content-Type": "multipart/form-data; boundary=b"}
HEAD = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n'


@pytest.mark.parametrize(
    ("headers", "body", "status", "says"),
    [
        (FORM, HEAD + FILE, 400, "last boundary"),
        (FORM, b"", 400, "last boundary"),
        (FORM, b"no form", 400, "no multipart/form-data"),
        (FORM, HEAD + b"--b--\r\n", 400, "has a filename"),
        (FORM, FILE + b"--b--\r\n", 400, "the purpose is None"),
        (FORM, HEAD + FILE + FILE + b"--b--\r\n", 400, "one file"),
        (FORM, HEAD.replace(b"batch", b"\xff") + FILE + b"--b--\r\n", 400, "not UTF-8"),
        (FORM, HEAD + FILE.replace(b'"a"', b'"\0"') + b"--b--\r\n", 400, ""),
        (FORM, HEAD.replace(b"batch", b"x" * 70_000) + FILE + b"--b--\r\n", 413, "fields"),
        (FORM, HEAD.replace(b"purpose", b"porpoise") + FILE + b"--b--\r\n", 400, "porpoise"),
        ({"Content-Type": "multipart/form-data"}, b"", 400, "boundary"),
        ({"Content-Type": "application/json"}, b"{}", 415, "multipart/form-data"),
    ],
)
def test_a_form_that_is_none_is_refused_with_what_is_wrong(
    http: httpx.Client, headers: dict[str, str], body: bytes, status: int, says: str
) -> None:
    found = http.post("/v1/files", content=body, headers=headers)
    assert found.status_code == status, found.text
    assert says in found.json()["error"]["message"]
    assert found.headers["content-type"] == "application/json"


def test_files_count_towards_what_a_tenant_may_store(platform: Platform) -> None:
    with client_of(platform, "small") as client, http_of(platform, "boss", role="admin") as http:
        limit = {"data": [{"stored_bytes": 3000}]}
        assert http.put("/tenants/small/limits", json=limit).status_code == 200
        first = upload(client, b"x" * 2000)

        def refused() -> openai.RateLimitError | None:  # once the limit is known
            try:
                client.files.delete(upload(client, b"x" * 2000).id)
            except openai.RateLimitError as error:
                return error
            return None

        error = eventually(refused)
        assert code_of(error) == "rate_limit_exceeded"
        assert error.response.headers["x-should-retry"] == "false"
        client.files.delete(first.id)
        upload(client, b"x" * 2000)


def test_a_tenants_files_go_with_it(platform: Platform) -> None:
    with client_of(platform, "leaver") as client:
        made = upload(client, purpose="user_data")
    with http_of(platform, "boss", role="admin") as http:
        assert http.delete("/tenants/leaver").status_code == 202
        eventually(lambda: http.get("/tenants/leaver/erasure").json()["complete"])
    assert is_gone(platform, made.id)


def test_a_large_file_goes_through_in_constant_memory(
    platform: Platform, client: OpenAI, tmp_path: Path
) -> None:
    size, path = MOST_MB << 20, tmp_path / "zeros"
    path.touch()
    os.truncate(path, size)
    upload(client, b"x" * (2 << 20))  # the process for large bodies is there now
    api = psutil.Process(pid_of(platform, "api"))
    processes = [api, *api.children(recursive=True)]

    def memory(_: int) -> int:
        return sum(process.memory_info().rss for process in processes)

    total = 0
    with repeated(memory, callers=1, pause_s=0.01) as seen:
        with path.open("rb") as body:
            made = client.files.create(file=("zeros", body), purpose="user_data")
        with client.files.with_streaming_response.content(made.id) as answer:
            for piece in answer.iter_bytes(1 << 20):
                total += len(piece)
                assert not piece.strip(b"\0")
    assert (total, made.bytes) == (size, size)
    assert max(seen) - seen[0] < size // 2


def test_models_are_listed_by_name_and_version(client: OpenAI) -> None:
    listed = [model.id for model in client.models.list()]
    assert set(listed) >= {id for model in SAMPLES for id in (model.name, model.key)}
    for id in ("echo", "echo@1"):
        found = client.models.retrieve(id)
        assert (found.id, found.object, found.owned_by) == (id, "model", "millrace")
    assert all(a != b for a, b in pairwise(sorted(listed)))


def test_token_ids_of_another_tokenizer_fail_a_batch(client: OpenAI) -> None:
    with pytest.raises(AssertionError, match="accept_token_ids = true"):
        openai_batch(client, "/v1/embeddings", {"model": "minilm", "input": [101, 2028, 102]})
