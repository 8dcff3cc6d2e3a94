"""Options of versions whose files are in an artifact."""

from pathlib import Path
from typing import Any

import pytest

from jobs.models import artifact_paths, models_file
from jobs.models.engines import huggingface_folder
from jobs.models.engines.custom_engines import EmbeddingOptions, PythonOptions, TorchOptions
from jobs.models.engines.engine_spec import EntryContext
from jobs.models.model import Model
from jobs.settings import SettingsError

DIGEST = f"sha256:{'0' * 64}"
ROOT = artifact_paths.FOLDER / DIGEST
ENTRY = EntryContext(ROOT, "embedding", {})


def options(kind: Any, **table: Any) -> dict[str, Any]:
    read: dict[str, Any] = models_file.read_table(kind, table, "options", ENTRY).model_dump(
        exclude_unset=True
    )
    return read


def test_paths_begin_at_the_root_and_digests_come_from_the_manifest() -> None:
    table = options(EmbeddingOptions, path=".")
    model = Model("m", "1", "huggingface", options=table, task="embedding", artifact=DIGEST)
    files = {"model.safetensors": "a" * 64, "config.json": "b" * 64, "tokenizer.json": "c" * 64}
    assert dict(model.staged(Path("/cache/x"), files).options) == {
        "path": "/cache/x",
        "sha256": "a" * 64,
        "config_sha256": "b" * 64,
        "tokenizer_sha256": "c" * 64,
    }


def test_a_file_below_a_folder_keeps_its_own_digest_where_an_option_has_one() -> None:
    table = options(TorchOptions, file="code/net.py", build="Net", weights="w.safetensors")
    table["sha256"] = "d" * 64
    model = Model("m", "1", "torch", options=table, task="any", artifact=DIGEST)
    staged = model.staged(Path("/x"), {"code/net.py": "e" * 64, "w.safetensors": "f" * 64}).options
    assert staged["file"] == "/x/code/net.py"
    assert (staged["file_sha256"], staged["sha256"]) == ("e" * 64, "d" * 64)


@pytest.mark.parametrize("path", ["/etc/model.py", "../model.py", "code/../../model.py"])
def test_a_path_that_leads_out_of_the_artifact_is_refused(path: str) -> None:
    with pytest.raises(SettingsError, match="below the artifact's root"):
        options(PythonOptions, file=path)


def test_sizes_are_estimated_where_the_files_are_not() -> None:
    table = options(EmbeddingOptions, path=".", max_tokens=100)
    assert huggingface_folder.longest(table) == 100
    assert huggingface_folder.tokens("word " * 20, {}, table) == 25
    assert huggingface_folder.tokens("word " * 500, {}, table) == 100
