"""Versions of the registry: options that name files of their artifacts, and probes."""

from pathlib import Path
from typing import Any

import pytest

from jobs.models import artifact_paths, models_file
from jobs.models.engines import huggingface_folder
from jobs.models.engines.custom_engines import EmbeddingOptions, PythonOptions, TorchOptions
from jobs.models.engines.engine_spec import EntryContext
from jobs.models.model import Model
from jobs.models.probe import Probe
from jobs.settings import SettingsError
from tests.support.cases import each

DIGEST = f"sha256:{'0' * 64}"
ROOT = artifact_paths.FOLDER / DIGEST
ENTRY = EntryContext(ROOT, "embedding", {})


def options(kind: Any, **table: Any) -> dict[str, Any]:
    read: dict[str, Any] = models_file.read_table(kind, table, "options", ENTRY).model_dump(
        exclude_unset=True
    )
    return read


def test_paths_begin_at_the_root_and_digests_come_from_the_manifest_or_an_option() -> None:
    table = options(EmbeddingOptions, path=".")
    model = Model("m", "1", "huggingface", options=table, task="embedding", artifact=DIGEST)
    files = {"model.safetensors": "a" * 64, "config.json": "b" * 64, "tokenizer.json": "c" * 64}
    assert dict(model.staged(Path("/cache/x"), files).options) == {
        "path": "/cache/x",
        "sha256": "a" * 64,
        "config_sha256": "b" * 64,
        "tokenizer_sha256": "c" * 64,
    }
    table = options(TorchOptions, file="code/net.py", build="Net", weights="w.safetensors")
    table["sha256"] = "d" * 64
    model = Model("m", "1", "torch", options=table, task="any", artifact=DIGEST)
    staged = model.staged(Path("/x"), {"code/net.py": "e" * 64, "w.safetensors": "f" * 64}).options
    assert staged["file"] == "/x/code/net.py"
    assert (staged["file_sha256"], staged["sha256"]) == ("e" * 64, "d" * 64)


def test_a_path_leads_to_no_place_outside_and_sizes_are_estimated_without_the_files() -> None:
    for path, case in each(["/etc/model.py", "../model.py", "code/../../model.py"]):
        with case, pytest.raises(SettingsError, match="below the artifact's root"):
            options(PythonOptions, file=path)
    table = options(EmbeddingOptions, path=".", max_tokens=100)
    assert huggingface_folder.longest(table) == 100
    assert huggingface_folder.tokens("word " * 20, {}, table) == 25
    assert huggingface_folder.tokens("word " * 500, {}, table) == 100


def test_answers_are_compared_within_the_tolerance_of_a_probe_that_survives_its_json() -> None:
    cases = [
        (1.0, 1.0005, ""),
        (1.0, 1.01, "output is 1.01"),
        (100.0, 100.05, ""),
        (3, 4, "output is 4"),
        (3, 3.0001, ""),
        (True, 1, "output is 1, not True"),
        ("a", "b", "output is 'b'"),
        ([1.0, 2.0], [1.0], "output is [1.0]"),
        ([1.0, 2.0], [1.01, 2.5], "input 1 is another one: output[1] is 2.5, not 2.0, off by 0.2"),
        ([1.0, "a"], [9.0, "b"], "output[1] is 'b'"),
        ({"a": [0.5, 0.5]}, {"a": [0.5, 0.6]}, "output.a[1] is 0.6"),
        ({"a": 1}, {"b": 1}, "output is {'b': 1}"),
        (1.0, None, "output is None"),
        (1.0, float("nan"), "output is nan"),
    ]
    for (known, given, place), case in each(cases):
        with case:
            problem = Probe(["x"], [known]).problem([given])
            assert (place in problem) if place else problem == ""
    probe = Probe(["ä", {"b": 1}], [[1.5], None], 0.1, {"truncate": 8})
    assert Probe.from_json(probe.as_json()) == probe
    for text in ("{}", '{"inputs": [], "outputs": []}', '{"inputs": [1], "outputs": []}', "x"):
        with pytest.raises(ValueError, match=r"."):
            Probe.from_json(text)
