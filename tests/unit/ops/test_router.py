"""Cells and their router: what the file declares, and the configuration made of it."""

from pathlib import Path

import pytest

from jobs.settings import SettingsError
from ops.router.cells import Cells
from ops.router.nginx import configuration

CELLS = """
default = "one"

[cells]
one = "http://10.0.0.1:8000"
two = "http://10.0.0.2:8000"

[tenants.acme]
cell = "two"
before = "one"
paused = true
keys = ["mk_Ab3dE"]
"""


def load(tmp_path: Path, text: str) -> Cells:
    file = tmp_path / "cells.toml"
    file.write_text(text)
    return Cells.load(file)


def test_a_tenant_is_known_by_its_name_and_its_keys(tmp_path: Path) -> None:
    text = configuration(load(tmp_path, CELLS), "127.0.0.1:8080")
    assert "mk_Ab3dE acme;" in text
    assert "acme millrace_two;" in text
    assert "acme millrace_two_then_one;" in text
    assert 'acme "paused ";' in text
    assert "server 10.0.0.1:8000 max_fails=0 backup;" in text
    assert "listen 127.0.0.1:8080;" in text


def test_problems_are_named(tmp_path: Path) -> None:
    for before, after, problem in (
        ('default = "one"', 'default = "three"', "no cell is called three"),
        ("http://10.0.0.1:8000", "https://10.0.0.1", "cells.one must be http://host:port"),
        ('["mk_Ab3dE"]', '["mk_Ab3dE", "mk_ab3de"]', "mk_ab3de is there twice"),
        ('["mk_Ab3dE"]', '["mk_Ab3dE; }"]', "keys"),
        ("[tenants.acme]", '[tenants."a b;"]', "tenants"),
        ("[cells]", "cells]", "not valid TOML"),
    ):
        assert before in CELLS
        with pytest.raises(SettingsError, match=problem):
            load(tmp_path, CELLS.replace(before, after))
