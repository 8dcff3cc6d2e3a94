"""Files of models: read only if they are those that were declared, and never as code."""

import hashlib
from pathlib import Path

SAFE = ".safetensors"


class Untrusted(Exception):
    """A file of a model is not loaded; says why, and what to do."""


def verified(path: Path, sha256: str) -> Path:
    """Returns the path after checking its SHA-256 (hexadecimal). Raises Untrusted."""
    try:
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Untrusted(f"{path} can't be read: {error.strerror}") from error
    if actual != sha256.lower():
        raise Untrusted(
            f"{path} is not the file that was declared: its SHA-256 is {actual}, not {sha256}; "
            "install it again, or declare the new one"
        )
    return path


def weights(path: Path, sha256: str) -> Path:
    """Returns the path if it is safe to load: safetensors, as declared. Raises Untrusted."""
    if path.suffix != SAFE:
        raise Untrusted(
            f"{path.name} is not loaded: only {SAFE} is. Pickled weights (.bin, .pt, .ckpt) run "
            "code of their authors; convert them with safetensors.torch.save_file"
        )
    return declared(path, sha256, "sha256")


def declared(path: Path, sha256: str, option: str) -> Path:
    """Returns the path after checking the SHA-256 that an option declares. Raises Untrusted."""
    if not sha256:
        raise Untrusted(f"options.{option} is missing: `sha256sum {path}` shows it")
    return verified(path, sha256)
