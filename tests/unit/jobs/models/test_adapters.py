"""Adapters in the models file: declared, named, seen by tenants, checked without torch."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.errors import UnknownModel
from jobs.models import models_file
from jobs.models.adapters import CONFIG, WEIGHTS, Adapter, read_config
from jobs.models.model import Model
from jobs.models.pricing import Price
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.settings import SettingsError
from tests.support.cases import each

SHA = "a" * 64
BASE = Model("m", "1", "minilm")
SERVER = 'options = { url = "http://127.0.0.1:1/v1", model = "x" }'


def adapter(name: str, **fields: object) -> Adapter:
    return Adapter(**{"name": name, "path": f"/{name}", "sha256": SHA} | fields)  # type: ignore[arg-type]


def with_adapters(*adapters: Adapter, model: Model = BASE) -> Model:
    return replace(model, adapters=adapters)


def entry(name: str, **fields: object) -> str:
    given = {"name": name, "path": name, "sha256": SHA} | fields
    lines = [f"{key} = {json.dumps(value)}" for key, value in given.items() if value is not None]
    return "\n".join(("[[model.adapters]]", *lines, ""))


def written(folder: Path, *adapters: str, engine: str = "minilm", options: str = "") -> Path:
    path = folder / "models.toml"
    head = f'[[model]]\nname = "m"\nversion = "1"\nengine = "{engine}"\n{options}\n'
    path.write_text(head + "\n".join(adapters))
    return path


def test_an_adapter_is_a_model_by_its_names_and_a_bare_one_means_a_model_or_the_newest_adapter(
    tmp_path: Path,
) -> None:
    models = models_file.read(written(tmp_path, entry("legal"), entry("tax", pinned=True)))
    legal = models.resolve("legal")
    assert legal.key == "m:legal@1"
    for name in ("m:legal", "m:legal@1", "m@1:legal"):
        assert models.resolve(name) is legal
    assert (legal.served_by.key, legal.adapter_name) == ("m@1", "legal")
    assert [model.key for model in models] == ["m@1"]
    assert [one.key for one in models.with_adapters(models)] == ["m@1", "m:legal@1", "m:tax@1"]
    assert models.adapters_of("m@1")["legal"].adapter.path == str(tmp_path / "legal")
    both = with_adapters(adapter("a")), with_adapters(adapter("a"), model=Model("n", "1", "minilm"))
    with pytest.raises(UnknownModel, match="m:a, n:a"):
        Registry(both).resolve("a")
    assert Registry(both).resolve("n:a").served_by.name == "n"
    other = Model("a", "1", "minilm")
    models = Registry([with_adapters(adapter("a")), other])
    assert models.resolve("a") == other
    newer = replace(BASE, version="2")
    models = Registry([with_adapters(adapter("a")), with_adapters(adapter("a"), model=newer)])
    assert models.resolve("a").key == "m:a@2"
    assert {"m", "m:a", "a"} <= set(models.ambiguous_names)


def test_an_adapter_is_unknown_to_other_tenants_and_costs_what_its_base_does_unless_it_says() -> (
    None
):
    models = Registry([with_adapters(adapter("a", tenants=("acme",)), adapter("b"))])
    assert models.of_tenant("acme").resolve("a").key == "m:a@1"
    others = models.of_tenant("other")
    for name in ("a", "m:a", "m:a@1"):
        with pytest.raises(UnknownModel) as hidden:
            others.resolve(name)
        with pytest.raises(UnknownModel) as absent:
            others.resolve("nothing")
        assert str(hidden.value) == str(absent.value).replace("nothing", name)
        assert "m:b@1" in str(hidden.value)
    base, own = Price(per_item=1), Price(per_item=2)  # type: ignore[arg-type]
    models = Registry([replace(BASE, price=base, adapters=(adapter("a"), adapter("b", price=own)))])
    assert (models.resolve("a").price, models.resolve("b").price) == (base, own)


def test_all_faults_are_reported_at_once_and_what_an_engine_can_not_serve(tmp_path: Path) -> None:
    wrong_ones = [entry("a b"), entry("c", sha256="xyz", more=1), entry("d", path=None)]
    with pytest.raises(SettingsError) as wrong:
        models_file.read(written(tmp_path, *wrong_ones, entry("e"), entry("e")))
    text = "\n".join(wrong.value.problems)
    for problem in (
        "adapters number 1.name: must be of letters",
        "adapters number 2.sha256: must be 64 hexadecimal digits",
        "unknown key 'more' in adapters number 2",
        "d: path is missing",
        "'e' is declared 2 times",
    ):
        assert problem in text
    pinned = [entry("a", pinned=True), entry("b")]
    cases = [
        ("echo", "", [entry("a")], "takes none"),
        ("openai", SERVER, [entry("a")], "out"),
        ("minilm", "options = { adapter_slots = 1 }", pinned, "leaves no slot"),
    ]
    for (engine, options, adapters, problem), case in each(cases):
        with case, pytest.raises(SettingsError, match=problem):
            models_file.read(written(tmp_path, *adapters, engine=engine, options=options))
    only_name = entry("a", path=None, sha256=None)
    models = models_file.read(written(tmp_path, only_name, engine="openai", options=SERVER))
    assert models.resolve("m:a").adapter_name == "a", "a server has adapters by name alone"


def test_adapters_come_and_go_while_one_that_changes_stays_as_it_was(tmp_path: Path) -> None:
    file = ModelsFile(written(tmp_path, entry("a")))
    written(tmp_path, entry("a", sha256="b" * 64, tenants=["acme"]), entry("new"))
    assert file.poll()
    kept = file.models.adapters_of("m@1")["a"].adapter
    assert (kept.sha256, kept.tenants) == (SHA, ("acme",))
    assert file.models.resolve("new")
    written(tmp_path)
    assert file.poll()
    assert not file.models.adapters


def test_folders_are_checked_without_their_weights(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    model = models_file.read(written(tmp_path, entry("a"))).resolve("m")
    assert len(model.file_problems()) == 2
    (folder / WEIGHTS).touch()
    (folder / CONFIG).write_text('{"r": 8, "lora_alpha": 16, "bias": "all"}')
    assert "bias is not supported" in model.file_problems()[0]
    (folder / CONFIG).write_text('{"r": 4, "lora_alpha": 16, "bias": "none", "use_rslora": true}')
    assert not model.file_problems()
    assert read_config(folder).scale == 8
