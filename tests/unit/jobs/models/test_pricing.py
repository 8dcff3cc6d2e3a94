"""What a model's use costs, as its entry says."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from jobs.models import models_file
from jobs.models.pricing import FREE, Price
from jobs.settings import SettingsError
from tests.support.cases import each

ENTRY = {"per_item": 0.001, "per_1k_units": 0.02, "per_device_s": 3, "class": {"bulk": 0.5}}


def priced(**entry: object) -> Price:
    return models_file.read_table(Price, entry, "price")


def test_rates_are_exact_and_go_by_class() -> None:
    price = priced(**ENTRY)
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
