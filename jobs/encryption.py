"""Encryption of stored secrets, by a key that is derived from MILLRACE_SECRET_KEY."""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from jobs.errors import NotConfigured

MIN_KEY = 32  # characters of a secret key; it is not stretched like a password

_NONCE_BYTES = 12


class DecryptionError(Exception):
    """The secret was encrypted by another key or for another owner, or is damaged."""


def encrypt(secret_key: str, owner: str, secret: str) -> bytes:
    """Encrypts a secret (AES-256-GCM), bound to its owner. Raises NotConfigured without a key."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _cipher(secret_key).encrypt(nonce, secret.encode(), owner.encode())


def decrypt(secret_key: str, owner: str, sealed: bytes) -> str:
    """Decrypts a secret. Raises NotConfigured without a key, DecryptionError with another one."""
    cipher = _cipher(secret_key)
    try:
        plain = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], owner.encode())
    except InvalidTag:
        raise DecryptionError(
            "the signing secret was encrypted by another MILLRACE_SECRET_KEY; set that one again, "
            "or rotate the secret"
        ) from None
    return plain.decode()


def _cipher(secret_key: str) -> AESGCM:
    if not secret_key:
        raise NotConfigured(
            "webhooks need MILLRACE_SECRET_KEY; `openssl rand -base64 32` makes one"
        )
    derive = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"millrace webhook secrets")
    return AESGCM(derive.derive(secret_key.encode()))
