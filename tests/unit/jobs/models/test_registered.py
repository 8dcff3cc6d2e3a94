"""The models that are served: those of the models file, while it changes, and of the registry, with
their artifacts and probes."""

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from jobs.errors import UnknownModel
from jobs.models import artifact_paths, models_file
from jobs.models.engines import huggingface_folder
from jobs.models.engines.custom_engines import EmbeddingOptions, PythonOptions, TorchOptions
from jobs.models.engines.engine_spec import EntryContext
from jobs.models.model import Model
from jobs.models.probe import Probe
from jobs.models.registered import Registered, RegisteredVersion, parse
from jobs.models.registry import Registry
from jobs.models.routing.rollout import ActiveRollout
from jobs.models.routing.route import Route, Share
from jobs.models.routing.table import RoutingTable
from jobs.models.watcher import ModelsFile
from jobs.settings import SettingsError
from tests.support.cases import each

DIGEST = f"sha256:{'0' * 64}"


def version(name: str, version: str, artifact: str = "", **entry: object) -> RegisteredVersion:
    fields = {"engine": "echo", **entry}
    return RegisteredVersion(name, version, orjson.dumps(fields).decode(), artifact)


def served(*versions: RegisteredVersion, **routing: object) -> Registry:
    file = ModelsFile(None)
    file.adopt(Registered(versions, routing=RoutingTable(**routing)))  # type: ignore[arg-type]
    return file.models


def key(models: Registry, name: str, tenant: str = "*") -> str:
    return models.resolve(name, tenant).key


def test_without_a_registry_the_files_models_are_served_and_a_retired_version_by_its_key() -> None:
    file = ModelsFile(None)
    before = file.models
    assert not file.adopt(Registered())
    assert file.models is before is file.declared
    file.adopt(Registered(unfinished=(version("echo", "9"),)))
    assert file.models.resolve("echo@9").version == "9"
    assert file.models.resolve("echo").version == "1"


def test_the_registrys_versions_count_before_the_files_and_the_one_registered_last_is_the_newest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    models = served(version("echo", "3"), version("echo", "2"))
    assert [model.version for model in models.versions("echo")] == ["2", "3", "1"]
    assert key(models, "echo") == "echo@2"
    assert key(models, "echo@1") == "echo@1"
    models = served(version("echo", "1", target_ms=77))
    assert models.resolve("echo").target_ms == 77
    assert len(models.versions("echo")) == 1
    assert "echo@1 differs from the registry's" in caplog.text


def test_what_cant_be_served_of_an_entry_is_left_out_and_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    models = served(version("echo", "2", engine="of a later release"), version("echo", "3"))
    assert [model.version for model in models.versions("echo")] == ["3", "1"]
    assert "echo@2 of the registry is not served: no engine" in caplog.text
    models = served(version("echo", "2", degrade={"fallback": "echo@0"}))
    assert models.resolve("echo").degrade.fallback == ""
    assert "'echo@0' is not declared here" in caplog.text


def test_a_change_of_the_file_leaves_the_registrys_versions(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text("model = []\n")
    file = ModelsFile(path)
    assert list(file.models) == []
    assert file.models.max_line_bytes > 0
    file.adopt(Registered((version("a", "1"),)))
    path.write_text('[[model]]\nname = "b"\nversion = "1"\nengine = "echo"\n')
    assert file.poll()
    assert [model.key for model in file.models] == ["b@1", "a@1"]


def test_options_of_an_artifact_name_files_below_it_and_no_entry_names_its_own() -> None:
    options = {"file": "model.py", "file_sha256": "0" * 64}
    one = version("mine", "1", DIGEST, engine="python", options=options)
    model = parse(one)
    assert model.options["file"] == str(artifact_paths.root(DIGEST) / "model.py")
    assert model.artifact == DIGEST
    for field in ("artifact", "probe"):
        with pytest.raises(SettingsError, match=f"{field}: the registry alone sets it"):
            parse(RegisteredVersion("echo", "2", f'{{"engine": "echo", "{field}": "x"}}'))


# -- names


def test_an_alias_means_its_version_if_that_is_served_and_a_version_goes_before_it() -> None:
    models = served(version("echo", "2"), aliases={("echo", "canary"): "1", ("echo", "2"): "1"})
    assert key(models, "echo@canary") == "echo@1"
    assert key(models, "echo@2") == "echo@2"
    models = served(aliases={("echo", "canary"): "7"})
    with pytest.raises(UnknownModel, match="'echo@canary' means version '7', which is not served"):
        models.resolve("echo@canary")
    with pytest.raises(UnknownModel, match="model 'echo@other' does not exist"):
        models.resolve("echo@other")


def test_a_bare_name_is_bound_by_rollout_then_route_then_stable_then_age() -> None:
    versions = version("echo", "2"), version("echo", "3"), version("echo", "4")
    stable, gone = {("echo", "stable"): "2"}, {("echo", "stable"): "0"}
    of_all = Route("echo", (Share("3", 95), Share("4", 5)))
    of_acme = Route("echo", (Share("1", 100),), "acme")
    by_tenant = {("echo", "*"): of_all, ("echo", "acme"): of_acme}
    rollout = {"echo": ActiveRollout("r", "echo", "2", "4", 50)}
    assert key(served(*versions), "echo") == "echo@4"
    assert key(served(*versions, aliases=stable), "echo") == "echo@2"
    assert key(served(version("echo", "2"), aliases=gone), "echo") == "echo@2"
    routed = served(*versions, aliases=stable, routes=by_tenant)
    assert key(routed, "echo") == "echo@3"
    assert key(routed, "echo", "acme") == "echo@1"
    rolling = served(*versions, aliases=stable, routes=by_tenant, rollouts=rollout)
    assert key(rolling, "echo", "acme") == "echo@2"
    assert key(rolling, "echo@4", "acme") == "echo@4"


ENTRY = '[[model]]\nname = "x"\nversion = "{}"\nengine = "echo"\ntarget_ms = {}\n'


def write(path: Path, text: str) -> None:
    """As deployments do: all of it at once."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "models.toml"
    write(made, ENTRY.format(1, 50))
    return made


def keys(file: ModelsFile) -> list[str]:
    return [model.key for model in file.models]


def test_a_file_that_changed_is_read_once_and_the_samples_never_change(path: Path) -> None:
    assert not ModelsFile(None).poll()
    file = ModelsFile(path)
    assert not file.poll()
    write(path, ENTRY.format(1, 50) + ENTRY.format(2, 50))
    assert file.poll()
    assert keys(file) == ["x@1", "x@2"]
    assert not file.poll()


def test_a_file_that_is_broken_or_gone_changes_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for text, case in each(["not TOML", "", ENTRY.format("a@b", 50)]):
        with case:
            caplog.clear()
            write(path, ENTRY.format(1, 50))
            file = ModelsFile(path)
            write(path, text)
            assert not file.poll()
            assert keys(file) == ["x@1"]
            assert "stays in force" in caplog.text
            with pytest.raises(SettingsError):
                ModelsFile(path)  # broken from the start
            write(path, ENTRY.format(2, 50))
            assert file.poll()
    path.unlink()
    assert not file.poll()
    assert keys(file) == ["x@2"]


def test_an_entry_that_changed_under_its_version_is_refused_and_keeps_its_fallback(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = ModelsFile(path)
    write(path, ENTRY.format(1, 75))
    assert file.poll()
    assert file.models.resolve("x").target_ms == 50
    assert "x@1 has changed: give it another version" in caplog.text
    write(path, ENTRY.format(1, 50) + ENTRY.format(2, 50) + 'degrade.fallback = "x@1"\n')
    file = ModelsFile(path)
    write(path, ENTRY.format(3, 50) + ENTRY.format(2, 50) + 'degrade.fallback = "x@3"\n')
    assert not file.poll()
    assert keys(file) == ["x@1", "x@2"]
    assert "x@2: degrade.fallback 'x@1' is not declared here" in caplog.text


def test_a_price_may_change_under_its_version_and_is_kept_once_it_is_declared_no_more(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = ModelsFile(path)
    [model] = file.models
    write(path, ENTRY.format(1, 50) + "price = { per_item = 2 }\n")
    assert file.poll()
    assert file.price(model).per_item == 2
    assert caplog.text == ""
    write(path, ENTRY.format(1, 70) + "price = { per_item = 3 }\n")
    assert file.poll()
    [changed] = file.models
    assert (changed.target_ms, file.price(model).per_item) == (50, 3)
    write(path, ENTRY.format(1, 50) + "price = { per_item = 2 }\n")
    file = ModelsFile(path)
    [model] = file.models
    write(path, ENTRY.format(2, 50))
    assert file.poll()
    assert file.price(model).per_item == 2


ROOT = artifact_paths.FOLDER / DIGEST
CONTEXT = EntryContext(ROOT, "embedding", {})


def options(kind: Any, **table: Any) -> dict[str, Any]:
    read: dict[str, Any] = models_file.read_table(kind, table, "options", CONTEXT).model_dump(
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
