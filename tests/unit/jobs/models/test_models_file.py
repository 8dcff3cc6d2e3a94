"""The models file: what is right is served, what is wrong is named, and prices are exact."""

import os
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from jobs.errors import UnknownModel
from jobs.models import models_file
from jobs.models.builtin_models import SAMPLES
from jobs.models.engines.engine_spec import TOKEN_BUCKETS
from jobs.models.model import Degrade, Limits, Model
from jobs.models.pricing import FREE, Price
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.settings import SettingsError
from tests.support.cases import each


def entry(name: str, version: str, engine: str) -> str:
    return f'[[model]]\nname = "{name}"\nversion = "{version}"\nengine = "{engine}"\n'


GOOD = f"""
{entry("embed", "1", "minilm")}
target_ms = 100
pool = "gpu"
bucketing = false
options = {{ max_tokens = 128 }}
limits = {{ max_batch = 8, max_tokens = 0 }}
{entry("embed", "2", "minilm")}
{entry("shout", "2024-01", "function")}
options.function = "my.module:shout"
"""


def read(folder: Path, text: str) -> Registry:
    path = folder / "models.toml"
    path.write_text(text)
    return models_file.load(path)


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(folder, text)
    return caught.value.problems


def test_a_file_declares_models_with_their_limits_in_one_pool_or_several(tmp_path: Path) -> None:
    assert models_file.load(None) is SAMPLES, "those are served without a file"
    models = read(tmp_path, GOOD)
    embed = models.resolve("embed@1")
    assert (embed.target_ms, embed.options) == (100, {"max_tokens": 128})
    assert embed.limits == Limits(max_batch=8, max_tokens=0)
    assert not embed.bucketing
    assert models.resolve("shout").limits == Limits()
    assert models.pools() == ["default", "gpu"]
    assert models.of_pool("gpu") == [embed]
    own = entry("a", "1", "echo") + "pool = "
    models = read(tmp_path, own + '["gpu", "cpu"]')
    assert models.pools() == ["cpu", "gpu"]
    assert models.of_pool("gpu") == models.of_pool("cpu") == list(models)
    assert models.of_pool("gp") == []
    for wrong in ("[]", '["gpu", ""]', '["gpu", "gpu"]', "3"):
        [problem] = problems(tmp_path, own + wrong)
        assert "pool" in problem


def test_a_version_is_as_old_as_the_file_that_declares_it(tmp_path: Path) -> None:
    """Also one that was declared before the file changed: each process says the same."""
    read(tmp_path, entry("a", "1", "echo"))
    path = tmp_path / "models.toml"
    os.utime(path, (1_000, 1_000))
    file = ModelsFile(path)
    assert [model.created for model in file.models] == [1_000]
    read(tmp_path, entry("a", "1", "echo") + entry("b", "1", "echo"))
    os.utime(path, (2_000, 2_000))
    assert file.poll()
    assert [model.created for model in file.models] == [2_000, 2_000]
    assert all(model.created > 1_000_000_000 for model in ModelsFile(None).models)


def test_a_bare_name_means_the_version_declared_last_and_an_unknown_one_is_refused(
    tmp_path: Path,
) -> None:
    models = read(tmp_path, GOOD)
    assert models.resolve("embed").key == "embed@2"
    assert models.resolve("embed@1").key == "embed@1"
    for asked, case in each(["", "embed@3", "Embed", "embed@", "@1", "embed@1@1"]):
        with case, pytest.raises(UnknownModel, match="embed@1, embed@2, shout@2024-01"):
            models.resolve(asked)


def test_every_problem_is_named_with_its_place(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """
        [[model]]
        name = "a@b"
        version = 1
        engine = "nope"
        colour = "red"

        [[model]]
        name = "ok"
        version = "1"
        engine = "echo"
        target_ms = "fast"
        pool = ""
        bucketing = "no"
        options = []
        limits = { max_batch = 0, max_tokens = -1, max_rows = 5, in_flight = true }

        [[model]]
        engine = "echo"
        limits = 5
        """,
    )
    second = "target_ms pool bucketing options max_batch max_tokens in_flight 'max_rows'"
    words = {1: "'nope' name version 'colour'", 2: second, 3: "name version limits"}
    places = [(number, word) for number, its in words.items() for word in its.split()]
    for (number, word), problem in zip(places, found, strict=True):
        assert problem.startswith(f"{tmp_path}/models.toml: [[model]] number {number}: ")
        assert word in problem


def test_a_file_with_one_problem_is_refused(tmp_path: Path) -> None:
    cases = [
        ("", "declares no [[model]]"),
        ("[[models]]\n", "declares no [[model]]"),
        ('[model]\nname = "a"\n', "in double brackets"),
        ("model = 5\n", "in double brackets"),
        ("model = [", "is not valid TOML"),
        (entry("a", "1", "echo") * 2, "models.toml declares a@1 twice"),
        (entry("m", "1", "echo") + 'prepare = "pool"', "'echo' prepares in its own workers"),
        (entry("m", "1", "echo") + 'pool = "prepare"', "that of the workers that prepare"),
        (entry("m", "1", "echo") + 'pool = "api"', "that of the api processes"),
        (entry("m", "1", "minilm") + "fetch = true", "take no bytes"),
        (entry("m", "1", "minilm") + 'prepare = "gpu"', "prepare"),
        (entry("m", "1~prepare", "echo"), "~prepare"),
    ]
    for (text, problem), case in each(cases):
        with case:
            [found] = problems(tmp_path, text)
            assert problem in found
    with pytest.raises(SettingsError, match="can't be read"):
        models_file.load(tmp_path / "absent.toml")


def test_buckets_go_as_far_as_texts_are_cut_and_are_lanes_of_a_layout_that_pads() -> None:
    cases = [(3, 16), (16, 16), (17, 24), (256, 256), (300, 384), (512, 512)]
    for (max_tokens, largest), case in each(cases):
        with case:
            options = {"max_tokens": max_tokens, "layout": "padded"}
            model = Model("a", "1", "minilm", options=options)
            buckets = tuple(top for top in TOKEN_BUCKETS if top <= largest)
            assert model.buckets == model.size_buckets == buckets
            assert model.size("word " * 1000, {}) == max_tokens
    padded = Model("a", "1", "minilm", options={"layout": "padded"})
    assert padded.buckets[-1] == 256
    assert replace(padded, bucketing=False).buckets == ()
    assert Model("a", "1", "echo").buckets == ()
    packed = Model("a", "1", "minilm")
    assert packed.buckets == ()
    assert packed.size_buckets[-1] == 256
    assert Model("a", "1", "echo").size_buckets == ()
    assert Model("a", "1", "encoder", options={"layout": "padded"}).pads
    assert not Model("a", "1", "encoder", options={"layout": "packed"}).pads
    assert not Model("a", "1", "encoder").pads
    assert not Model("a", "1", "echo").pads


def test_a_call_is_sized_as_it_will_be_cut_in_units_that_need_no_file() -> None:
    minilm = SAMPLES.resolve("minilm")
    for truncate, size in ((3, 3), (40, 40), (300, 256)):
        assert minilm.size("word " * 1000, {"truncate": truncate}) == size
    assert minilm.size(" " * 5000 + "word " * 1000, {}) == 256
    assert (SAMPLES.unit("minilm", "1"), SAMPLES.unit("gone", "1")) == ("tokens", "units")
    one, same = (Model("a", "1", "echo", options={"x": [1]}) for _ in range(2))
    assert {one: 1}[same] == 1


def test_an_entry_may_degrade_or_leave_preparation_to_workers_of_their_own(tmp_path: Path) -> None:
    degrading = 'degrade = { shed = true, truncate = 64, fallback = "embed@1" }'
    versions = [entry("embed", version, "minilm") for version in "12"]
    models = read(tmp_path, "".join(versions) + degrading)
    assert models.resolve("embed@2").degrade == Degrade(True, 64, "embed@1")
    assert models.resolve("embed@1").degrade == Degrade()
    models = read(tmp_path, entry("m", "1", "minilm") + 'prepare = "pool"\n')
    model = models.resolve("m")
    [preparation] = models.of_pool("prepare")
    assert (preparation.key, model.stages) == ("m@1~prepare", (preparation, model))
    assert models.pools() == ["default", "prepare"]
    assert list(models) == [model]
    assert models.get("m@1~prepare") is None  # nobody may ask for it
    assert not preparation.buckets  # how long a text is isn't known yet


def test_what_is_wrong_with_degrade_is_named_at_each_of_its_models(tmp_path: Path) -> None:
    cases = [
        ("minilm", "5", "must be a table"),
        ("minilm", "{ shorten = 5 }", "unknown key 'shorten'"),
        ("minilm", "{ shed = 1 }", "shed must be true or false"),
        ("minilm", "{ truncate = 2 }", "truncate must be a whole number of tokens, 3 to"),
        ("minilm", "{ truncate = true }", "truncate must be a whole number of tokens, 3 to"),
        ("echo", "{ truncate = 64 }", "takes no parameter 'truncate'"),
        ("echo", "{ fallback = 1 }", "fallback must be a valid string"),
        ("echo", '{ fallback = "gone@1" }', "'gone@1' is not declared here; there are: a@1, b@1"),
        ("echo", '{ fallback = "a" }', "'a' is not declared here"),
        ("echo", '{ fallback = "a@1" }', "'a@1' leads back to it"),
        ("echo", '{ fallback = "b@1" }', "'b@1' takes texts alone"),
    ]
    for (engine, degrade, problem), case in each(cases):
        with case:
            text = entry("a", "1", engine) + f"degrade = {degrade}\n" + entry("b", "1", "minilm")
            [found] = problems(tmp_path, text)
            assert problem in found
    entries = [
        entry(a, "1", "echo") + f'degrade.fallback = "{b}@1"\n' for a, b in ("ab", "bc", "cb")
    ]
    found = problems(tmp_path, "".join(entries))
    assert [problem.split(": ")[1] for problem in found] == ["b@1", "c@1"]


def test_a_model_of_tensors_declares_them(tmp_path: Path) -> None:
    head = '[[model]]\nname = "a"\nversion = "1"\nengine = '
    declared = '[{ name = "x", datatype = "INT32", shape = [-1] }]'
    both = f"options = {{ function = 'a:b', inputs = {declared}, outputs = {declared} }}\n"
    assert problems(tmp_path, f'{head}"tensors"\noptions = {{ inputs = {declared} }}\n') == [
        f"{tmp_path}/models.toml: [[model]] number 1: options.outputs is missing: "
        "a list of { name, datatype, shape }"
    ]
    [_, outputs] = problems(tmp_path, f'{head}"tensors"\n')
    assert "options.outputs" in outputs
    [problem] = problems(tmp_path, f'{head}"echo"\ntask = "tensors"\n')
    assert "no task 'tensors'" in problem
    [problem] = problems(tmp_path, f'{head}"tensors"\ntask = "text"\n{both}')
    assert "no task 'text'; there are: tensors" in problem
    fallback = 'degrade = { fallback = "b@1" }\n'
    other = entry("b", "1", "echo")
    [problem] = problems(tmp_path, f'{head}"tensors"\n{fallback}{both}{other}')
    assert "a@1: degrade.fallback 'b@1' does any, not tensors" in problem


PRICE = {"per_item": 0.001, "per_1k_units": 0.02, "per_device_s": 3, "class": {"bulk": 0.5}}


def priced(**entry: object) -> Price:
    return models_file.read_table(Price, entry, "price")


def test_rates_are_exact_and_go_by_class() -> None:
    price = priced(**PRICE)
    standard, bulk = price.rates("standard"), price.rates("bulk")
    assert standard[:3] == (Decimal("0.001"), Decimal("0.00002"), Decimal("0.000003"))
    assert bulk[:3] == (Decimal("0.0005"), Decimal("0.00001"), Decimal("0.0000015"))
    price = priced(per_item=999_999_999.1234567, **{"class": {"bulk": 1.000000000001}})
    exact = Fraction(9_999_999_991_234_567 * 1_000_000_000_001, 10**19)
    assert Fraction(price.rates("bulk")[0]) == exact


def test_tokens_have_a_price_each_and_all_is_free_without_one() -> None:
    entry = {"per_1k_input_tokens": 0.15, "per_1k_cached_tokens": 0.05, "class": {"bulk": 0.5}}
    price = priced(**entry, per_1k_output_tokens=0.6)
    assert price.rates("bulk")[3:] == (Decimal("0.000075"), Decimal("0.000025"), Decimal("0.0003"))
    assert priced(per_1k_input_tokens=0.15).rates("standard").cached_token == Decimal("0.00015")
    free = priced(per_1k_input_tokens=0.15, per_1k_cached_tokens=0)
    assert free.rates("standard").cached_token == 0
    assert priced() == FREE
    assert not any(FREE.rates("interactive"))


def test_what_is_wrong_with_a_price_is_said() -> None:
    cases = [
        (7, "must be a table"),
        ({"per_token": 1}, "unknown key 'per_token'"),
        ({"per_item": -1}, "price.per_item: must be a number"),
        ({"per_item": True}, "price.per_item: must be a number"),
        ({"per_item": "1"}, "price.per_item: must be a number"),
        ({"per_item": float("nan")}, "price.per_item: must be a number"),
        ({"per_item": float("inf")}, "price.per_item: must be a number"),
        ({"per_item": 10**10}, "price.per_item: must be a number"),
        ({"per_device_s": 1e-13}, "price.per_device_s: must be a number"),
        ({"class": 2}, "price.class must be a table"),
        ({"class": {"express": 2}}, "class.express must be 'interactive', 'standard' or 'bulk', n"),
        ({"class": {"bulk": -1}}, "price.class.bulk: must be a number"),
    ]
    for (entry, problem), case in each(cases):
        with case:
            with pytest.raises(SettingsError) as caught:
                models_file.read_table(Price, entry, "price")
            [found] = caught.value.problems
            assert problem in found


def test_the_models_file_has_prices(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    entry = '[[model]]\nname = "m"\nversion = "1"\nengine = "echo"\n[model.price]\n'
    path.write_text(entry + "per_item = 0.25\nclass = { interactive = 2 }\n")
    assert models_file.read(path).resolve("m").price.rates("interactive")[0] == Decimal("0.5")
    path.write_text(entry + "per_itme = 0.25\n")
    with pytest.raises(SettingsError, match="per_itme"):
        models_file.read(path)
