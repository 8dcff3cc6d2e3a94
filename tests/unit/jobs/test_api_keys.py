"""Keys as they are made, and what may be asked of a new one."""

import hashlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs import api_keys
from jobs.api_keys import NewKey
from jobs.errors import Invalid
from jobs.identity import ROLES
from ops.cli import main
from tests.support.cases import each


def test_a_key_is_256_random_bits_and_stored_as_their_hash() -> None:
    made = {api_keys.generate() for _ in range(100)}
    assert len(made) == 100
    for key in made:
        assert api_keys.is_key(key)
        assert len(key) == 46
        assert api_keys.hash_key(key) == hashlib.sha256(key.encode()).digest()


def test_what_is_no_key_is_told_by_its_looks() -> None:
    cases = ["", "mk_", "mk_" + "x" * 42, "mk_" + "x" * 44, "mk_" + "+" * 43, "MK_" + "x" * 43]
    for text, case in each(cases):
        with case:
            assert not api_keys.is_key(text)


def test_a_new_key_does_not_show_itself() -> None:
    asked = NewKey("acme")
    assert asked.secret not in repr(asked)


def test_without_scopes_a_key_has_all_of_its_role() -> None:
    for role, scopes in ROLES.items():
        assert set(NewKey("acme", role=role).granted) == scopes


@pytest.mark.parametrize("name", ["acme", "a", "7", "A.b_c:d@e-f", "x" * 100])
def test_a_tenant_may_be_called_so(name: str) -> None:
    api_keys.validate(NewKey(name))


@pytest.mark.parametrize("name", ["", "*", "a b", "-a", "x" * 101, "a\n", "ä", "a/b", "a\x00"])
def test_a_tenant_may_not_be_called_so(name: str) -> None:
    with pytest.raises(Invalid):
        api_keys.validate(NewKey(name))


@pytest.mark.parametrize("scopes", [{"admin"}, {"read", "operate"}, set()])
def test_a_key_has_no_more_than_its_role_and_no_less_than_one_scope(scopes: set[str]) -> None:
    with pytest.raises(Invalid):
        api_keys.validate(NewKey("acme", scopes=frozenset(scopes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "words",
    [
        ["tenant", "acme", "--weight"],
        ["tenant", "acme", "--soft-cap"],
        ["tenant", "acme", "--hard-cap"],
        ["keys", "create", "--tenant", "acme", "--expires-in-days"],
        ["keys", "rotate", "key_1", "--overlap-s"],
    ],
)
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_the_command_line_takes_only_numbers_that_are_some(
    words: list[str], number: str, tmp_path: Path
) -> None:
    home = {"MILLRACE_HOME": str(tmp_path)}
    refused = CliRunner().invoke(main.main, [*words, number], env=home)
    assert refused.exit_code == 2
    assert words[-1] in refused.output
