"""Keys as they are made, and what may be asked of a new one."""

import hashlib
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs import api_keys
from jobs.api_keys import NewKey
from jobs.errors import Invalid
from jobs.identity import ROLES
from ops.cli import main
from tests.support.cases import each


def test_a_key_is_of_random_bits_told_by_its_looks_and_has_all_scopes_of_its_role() -> None:
    made = {api_keys.generate() for _ in range(100)}
    assert len(made) == 100
    for key in made:
        assert api_keys.is_key(key)
        assert len(key) == 46
        assert api_keys.hash_key(key) == hashlib.sha256(key.encode()).digest()
    cases = ["", "mk_", "mk_" + "x" * 42, "mk_" + "x" * 44, "mk_" + "+" * 43, "MK_" + "x" * 43]
    for text, case in each(cases):
        with case:
            assert not api_keys.is_key(text)
    asked = NewKey("acme")
    assert asked.secret not in repr(asked)
    for role, scopes in ROLES.items():
        assert set(NewKey("acme", role=role).granted) == scopes


def test_a_tenant_has_one_of_these_names_and_a_key_a_scope_of_its_role() -> None:
    for name, case in each(["acme", "a", "7", "A.b_c:d@e-f", "x" * 100]):
        with case:
            api_keys.validate(NewKey(name))
    for name, case in each(["", "*", "a b", "-a", "x" * 101, "a\n", "ä", "a/b", "a\x00"]):
        with case, pytest.raises(Invalid):
            api_keys.validate(NewKey(name))
    for scopes, case in each([{"admin"}, {"read", "operate"}, set()]):
        with case, pytest.raises(Invalid):
            api_keys.validate(NewKey("acme", scopes=frozenset(scopes)))


def test_the_command_line_takes_only_numbers_that_are_some(tmp_path: Path) -> None:
    commands = [f"tenant acme {option}" for option in ("--weight", "--soft-cap", "--hard-cap")]
    commands += ["keys create --tenant acme --expires-in-days", "keys rotate key_1 --overlap-s"]
    for (command, number), case in each(product(commands, ["nan", "inf"])):
        with case:
            words, home = command.split(), {"MILLRACE_HOME": str(tmp_path)}
            refused = CliRunner().invoke(main.main, [*words, number], env=home)
            assert refused.exit_code == 2
            assert words[-1] in refused.output
