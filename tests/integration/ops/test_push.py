"""`millrace models push` of a folder: its files, its signature, its version."""

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine

from jobs.artifacts import folder as folders
from jobs.artifacts.push import blob_key
from jobs.store.registry import artifacts
from tests.support import signing
from tests.support.command_line import run_millrace

ENTRY = json.dumps({"engine": "echo"})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return signing.write_tree(tmp_path / "model", {"config.json": b"{}", "w.bin": b"1234"})


def push(url: str, files: Path, *arguments: object, status: int = 0) -> str:
    env = {"MILLRACE_DATABASE_URL": url, "MILLRACE_BLOBS": f"file:{files}"}
    words = ["models", "push", *map(str, arguments), "--name", "x", "--entry", ENTRY]
    return run_millrace(*words, status=status, **env).output


def test_a_folder_is_registered_with_its_signature(
    database: Engine, database_url: str, model: Path, tmp_path: Path
) -> None:
    (model / folders.SIGNATURE).write_text("{}")
    for _ in range(2):  # to repeat it is harmless
        push(database_url, tmp_path / "files", model, "--version", "1")
    manifest = folders.read(model)
    with database.begin() as tx:
        assert [one.bundle for one in artifacts.signatures_of(tx, manifest.digest)] == ["{}"]


def test_renamed_contents_are_refused(database_url: str, model: Path, tmp_path: Path) -> None:
    push(database_url, tmp_path / "files", model, "--version", "1")
    (model / "w.bin").rename(model / "weights.bin")
    refused = push(database_url, tmp_path / "files", model, "--version", "2", status=1)
    assert "under other names" in refused


def test_damaged_contents_are_replaced(database_url: str, model: Path, tmp_path: Path) -> None:
    files = tmp_path / "files"
    push(database_url, files, model, "--version", "1")
    stored = files / blob_key(next(one.sha256 for one in folders.read(model).files if one.size > 2))
    stored.chmod(0o644)
    stored.write_bytes(b"4321")
    push(database_url, files, model, "--version", "1", "--replace")
    assert stored.read_bytes() == b"1234"


def test_the_links_of_a_hugging_face_folder_are_pushed_as_the_files_that_they_mean(
    database_url: str, tmp_path: Path
) -> None:
    repository, files = tmp_path / "models--a--b", tmp_path / "files"
    signing.write_tree(repository, {"blobs/111": b"{}", "blobs/222": b"weights"})
    snapshot = repository / "snapshots" / "rev"
    snapshot.mkdir(parents=True)
    for name, blob in (("config.json", "111"), ("model.safetensors", "222")):
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    push(database_url, files, snapshot, "--version", "1")
    for name, digest in folders.read(snapshot).digests.items():
        assert (files / blob_key(digest)).read_bytes() == (snapshot / name).read_bytes()
    (snapshot / "secret").symlink_to(signing.write(tmp_path / "secret", b"s"))
    refused = push(database_url, files, snapshot, "--version", "2", status=1)
    assert "secret is a link to" in refused


def test_a_signature_without_a_folder_is_refused(database_url: str, tmp_path: Path) -> None:
    refused = push(database_url, tmp_path / "files", "--version", "1", "--replace", status=2)
    assert "give it too" in refused
