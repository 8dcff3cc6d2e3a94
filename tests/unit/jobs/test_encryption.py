"""The first key encrypts, all decrypt."""

import pytest

from jobs import encryption
from jobs.encryption import DecryptionError, decrypt, decrypt_with, encrypt
from jobs.errors import NotConfigured
from jobs.settings import Settings, SettingsError, load

OLD, NEW = "an old key, of 32 characters or more", "a new key, of 32 characters or more"
BOTH = f"{NEW}\n{OLD}"


@pytest.mark.parametrize("text", [BOTH, f" {NEW} \n\n{OLD}\n", f"{NEW}\r\n{OLD}\r\n{NEW}"])
def test_keys_stand_one_a_line(text: str) -> None:
    assert encryption.keys(text) == (NEW, OLD)


@pytest.mark.parametrize("text", [OLD, f" {OLD}", f"{OLD}\n"])
def test_a_key_alone_is_the_whole_text_as_ever(text: str) -> None:
    assert encryption.keys(text) == (text,)


def test_what_one_key_encrypted_is_read_by_a_list_that_has_it() -> None:
    sealed = encrypt(OLD, "acme", "secret")
    assert decrypt_with(BOTH, "acme", sealed) == ("secret", 1)
    with pytest.raises(DecryptionError, match="add that key behind the first one"):
        decrypt(NEW, "acme", sealed)
    with pytest.raises(DecryptionError):
        decrypt(BOTH, "other", sealed)


def test_the_first_key_encrypts() -> None:
    sealed = encrypt(BOTH, "acme", "secret")
    assert decrypt(NEW, "acme", sealed) == "secret"
    with pytest.raises(DecryptionError):
        decrypt(OLD, "acme", sealed)


@pytest.mark.parametrize("text", [f"{NEW}\nshort", f"short\n{NEW}", "short", "\n"])
def test_each_of_several_keys_must_be_long(text: str) -> None:
    with pytest.raises(SettingsError, match="MILLRACE_SECRET_KEY: must be 32 characters") as error:
        load({"MILLRACE_SECRET_KEY": text})
    assert "each of several keys" in str(error.value)
    assert NEW not in str(error.value)


def test_children_get_all_keys() -> None:
    assert load(Settings(secret_key=BOTH).environment()).secret_key == BOTH


def test_without_a_key_nothing_is_encrypted() -> None:
    with pytest.raises(NotConfigured, match="MILLRACE_SECRET_KEY"):
        encrypt("", "acme", "secret")
