"""The key of a home: one, for its owner alone."""

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs import encryption
from jobs.settings import Settings
from ops.cli import check
from ops.embedded import defaults, secret_key
from ops.embedded.errors import EmbeddedError


def test_whoever_makes_it_at_the_same_time_reads_the_same_key(tmp_path: Path) -> None:
    home = tmp_path / "home"
    together = threading.Barrier(8)

    def use(_: int) -> str:
        together.wait()
        secret_key.ensure(home)
        return secret_key.read(home)

    with ThreadPoolExecutor(8) as pool:
        [key] = set(pool.map(use, range(8)))
    assert len(key) >= 32
    assert [path.name for path in home.iterdir()] == ["secret.key"]
    assert stat.S_IMODE((home / "secret.key").stat().st_mode) == 0o600


def test_it_belongs_to_the_embedded_database_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    embedded = Settings(home=home)
    assert defaults.fill_in(embedded).secret_key == ""
    assert not home.exists(), "reading makes none"
    secret_key.ensure(home)
    assert defaults.fill_in(embedded).secret_key == secret_key.read(home)
    assert defaults.fill_in(embedded.evolve(database_url="postgresql://h/d")).secret_key == ""
    assert defaults.fill_in(embedded.evolve(secret_key="k" * 32)).secret_key == "k" * 32


def test_several_keys_stand_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    path.write_text(f"{'n' * 32}\n{'o' * 32}\n")
    filled = defaults.fill_in(Settings(home=tmp_path)).secret_key
    assert encryption.keys(filled) == ("n" * 32, "o" * 32)
    path.write_text(f"{'n' * 32}\nshort\n")
    with pytest.raises(EmbeddedError, match=r"secret\.key has a key of fewer than 32 characters"):
        secret_key.read(tmp_path)


def test_a_key_is_shown_nowhere() -> None:
    settings = Settings(secret_key="k" * 32)
    assert "kkkk" not in repr(settings)
    assert "kkkk" not in str(list(check.setting_values(settings)))
