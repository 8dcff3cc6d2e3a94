"""Encryption of stored secrets, by keys that are derived from those of MILLRACE_SECRET_KEY.

The first key encrypts. All decrypt, so that what older keys encrypted stays readable until
`millrace rotate-secret` has encrypted it again.
"""

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from jobs.errors import NotConfigured

if TYPE_CHECKING:  # loaded with the first secret: most processes never see one
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MIN_KEY = 32  # characters of a secret key; it is not stretched like a password

_NONCE_BYTES = 12


class DecryptionError(Exception):
    """The secret was encrypted by another key or for another owner, or is damaged."""


def keys(secret_key: str) -> tuple[str, ...]:
    """Returns the keys of MILLRACE_SECRET_KEY, one a line, each once."""
    lines = [line.strip() for line in secret_key.split("\n")]
    found = tuple(dict.fromkeys(filter(None, lines)))
    return found if len(found) > 1 or not found else (secret_key,)


def are_long(secret_key: str) -> bool:
    """Returns True if there are keys, and each has MIN_KEY characters or more."""
    found = keys(secret_key)
    return bool(found) and all(len(key) >= MIN_KEY for key in found)


def encrypt(secret_key: str, owner: str, secret: str) -> bytes:
    """Encrypts a secret (AES-256-GCM), bound to its owner, with the first key.

    Raises NotConfigured without a key.
    """
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _ciphers(secret_key)[0].encrypt(nonce, secret.encode(), owner.encode())


def decrypt(secret_key: str, owner: str, sealed: bytes) -> str:
    """Decrypts a secret. Raises NotConfigured without a key, DecryptionError if none fits."""
    return decrypt_with(secret_key, owner, sealed)[0]


def decrypt_with(secret_key: str, owner: str, sealed: bytes) -> tuple[str, int]:
    """Decrypts a secret. Returns it and the position of its key, from 0; raises as `decrypt`."""
    from cryptography.exceptions import InvalidTag

    nonce, encrypted = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    for position, cipher in enumerate(_ciphers(secret_key)):
        try:
            return cipher.decrypt(nonce, encrypted, owner.encode()).decode(), position
        except InvalidTag:
            continue
    raise DecryptionError(
        "the signing secret was encrypted by a key that MILLRACE_SECRET_KEY doesn't have; add "
        "that key behind the first one, or rotate the secret"
    )


@lru_cache(maxsize=8)
def _ciphers(secret_key: str) -> "tuple[AESGCM, ...]":
    found = keys(secret_key)
    if not found:
        raise NotConfigured(
            "webhooks need MILLRACE_SECRET_KEY; `openssl rand -base64 32` makes one"
        )
    return tuple(map(_cipher, found))


def _cipher(key: str) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derive = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"millrace webhook secrets")
    return AESGCM(derive.derive(key.encode()))
