"""The first key encrypts, all decrypt."""

import pytest

from jobs.errors import NotConfigured
from jobs.security import encryption
from jobs.security.encryption import DecryptionError, decrypt, decrypt_with, encrypt
from jobs.settings import Settings, SettingsError, load
from tests.support.cases import each

OLD, NEW = "an old key, of 32 characters or more", "a new key, of 32 characters or more"
BOTH = f"{NEW}\n{OLD}"


def test_keys_stand_one_a_line_or_alone_and_each_must_be_long() -> None:
    for text, case in each([BOTH, f" {NEW} \n\n{OLD}\n", f"{NEW}\r\n{OLD}\r\n{NEW}"]):
        with case:
            assert encryption.keys(text) == (NEW, OLD)
    for text, case in each([OLD, f" {OLD}", f"{OLD}\n"]):
        with case:
            assert encryption.keys(text) == (text,)
    for text, case in each([f"{NEW}\nshort", f"short\n{NEW}", "short", "\n"], name=repr):
        with case:
            with pytest.raises(
                SettingsError, match="MILLRACE_SECRET_KEY: must be 32 char"
            ) as error:
                load({"MILLRACE_SECRET_KEY": text})
            assert "each of several keys" in str(error.value)
            assert NEW not in str(error.value)


def test_the_first_key_encrypts_and_a_list_that_has_the_key_decrypts_for_its_owner() -> None:
    sealed = encrypt(OLD, "acme", "secret")
    assert b"secret" not in sealed
    assert sealed != encrypt(OLD, "acme", "secret")
    assert decrypt_with(BOTH, "acme", sealed) == ("secret", 1)
    with pytest.raises(DecryptionError, match="add that key behind the first one"):
        decrypt(NEW, "acme", sealed)
    with pytest.raises(DecryptionError):
        decrypt(BOTH, "other", sealed)
    with pytest.raises(DecryptionError):
        decrypt(OLD, "acme", sealed[:-1] + bytes([sealed[-1] ^ 1]))
    assert load(Settings(secret_key=BOTH).environment()).secret_key == BOTH
    sealed = encrypt(BOTH, "acme", "secret")
    assert decrypt(NEW, "acme", sealed) == "secret"
    with pytest.raises(DecryptionError):
        decrypt(OLD, "acme", sealed)
    with pytest.raises(NotConfigured, match="MILLRACE_SECRET_KEY"):
        encrypt("", "acme", "secret")
