import os
from pathlib import Path

import pytest

from jobs.artifacts import folder
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.manifest import ArtifactFile, Manifest
from tests.support import signing
from tests.support.cases import each

ZEROS, ONES = "0" * 64, "1" * 64


def test_a_manifest_has_its_files_in_order_of_their_parts_and_survives_its_json(
    tmp_path: Path,
) -> None:
    files = [ArtifactFile(name, 1, ZEROS) for name in ("a.txt", "a/b", "B", "a0")]
    ordered = [file.path for file in Manifest.create(files).files]
    assert ordered == ["B", "a/b", "a.txt", "a0"]
    signing.write_tree(tmp_path, {"ä.bin": b"", "b/c": b"xyz"})
    manifest = folder.read(tmp_path)
    assert Manifest.from_json(manifest.as_json()) == manifest
    assert manifest.size == 3


def test_paths_that_lead_elsewhere_and_contradictory_files_are_refused() -> None:
    cases = ["", "/etc/passwd", "../a", "a/../b", "a//b", "a/", ".", "a\\b", "a\nb", "\udcff"]
    for path, case in each(cases):
        with case, pytest.raises(Untrusted):
            Manifest.create([ArtifactFile(path, 1, ZEROS)])
    for other in (ArtifactFile("a", 1, ONES), ArtifactFile("a/b", 1, ONES)):
        with pytest.raises(Untrusted):
            Manifest.create([ArtifactFile("a", 1, ZEROS), other])
    with pytest.raises(Untrusted, match="another size"):
        Manifest.create([ArtifactFile("a", 1, ZEROS), ArtifactFile("b", 2, ZEROS)])


def test_a_broken_manifest_is_refused() -> None:
    cases = [
        "", "[]", "{}", '{"files": []}', '{"files": [{}]}', '{"files": null}', "{" * 100_000,
        f'{{"files": [{{"path": "a", "size": 1.5, "sha256": "{ZEROS}"}}]}}',
        f'{{"files": [{{"path": "a", "size": -1, "sha256": "{ZEROS}"}}]}}',
        f'{{"files": [{{"path": "a", "size": 1, "sha256": "{ZEROS[:-1]}A"}}]}}',
        f'{{"files": [{{"path": "a", "size": 1, "sha256": "{ZEROS}", "x": 1}}]}}',
    ]  # fmt: skip
    for text, case in each(cases):
        with case, pytest.raises(Untrusted):
            Manifest.from_json(text)


def hugging_face(cache: Path) -> Path:
    """A folder as Hugging Face's cache has it: every file is a link to a blob."""
    snapshot = cache / "models--a--b" / "snapshots" / "rev"
    blobs = signing.write_tree(snapshot.parents[1] / "blobs", {"111": b"{}", "222": b"weights"})
    (snapshot / "sub").mkdir(parents=True)
    (snapshot / "config.json").symlink_to("../../blobs/111")
    (snapshot / "sub" / "model.safetensors").symlink_to("../../../blobs/222")
    assert blobs.is_dir()
    return snapshot


def test_links_of_hugging_face_and_into_its_cache_are_the_files_that_they_mean(
    tmp_path: Path,
) -> None:
    plain = signing.write_tree(
        tmp_path / "plain", {"config.json": b"{}", "sub/model.safetensors": b"weights"}
    )
    assert folder.read(hugging_face(tmp_path)) == folder.read(plain)
    snapshot, local = hugging_face(tmp_path / "cache"), tmp_path / "local"
    local.mkdir()
    (local / "config.json").symlink_to(snapshot / "config.json")  # which is a link itself
    (local / "sub").mkdir()
    (local / "sub" / "model.safetensors").symlink_to(snapshot.parents[1] / "blobs" / "222")
    (tmp_path / "away").symlink_to(local)
    expected = folder.read(snapshot)
    assert folder.read(local) == expected
    assert folder.read(tmp_path / "away") == expected


def test_links_that_lead_outside_are_refused(tmp_path: Path) -> None:
    secret = signing.write(tmp_path / "secret", b"s")
    model = signing.write_tree(tmp_path / "model", {"config.json": b"{}"})
    (model / "link").symlink_to(secret)
    with pytest.raises(Untrusted, match="outside the folder"):
        folder.read(model)
    snapshot = hugging_face(tmp_path)
    (snapshot / "ref").symlink_to("../../refs")
    with pytest.raises(Untrusted, match="leads nowhere"):
        folder.read(snapshot)
    signing.write_tree(snapshot.parents[1], {"refs": b"rev"})
    with pytest.raises(Untrusted, match="outside the folder"):
        folder.read(snapshot)


@pytest.mark.parametrize("kind", ["folder", "fifo", "loop"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    model = signing.write_tree(tmp_path / "model", {"a/b": b"1"})
    if kind == "folder":
        (model / "link").symlink_to("a")
    elif kind == "fifo":
        os.mkfifo(model / "pipe")
    else:
        (model / "loop").symlink_to("loop")
    with pytest.raises(Untrusted):
        folder.read(model)


def test_names_that_git_uses_are_no_part_of_an_artifact(tmp_path: Path) -> None:
    files = {".git/config": b"", ".gitattributes": b"", "model.sig": b"", "sub/.gitignore": b"x"}
    signing.write_tree(tmp_path, files)
    assert [file.path for file in folder.read(tmp_path).files] == ["sub/.gitignore"]
