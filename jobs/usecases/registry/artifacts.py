"""Checks of what versions and their adapters take from artifacts."""

from collections.abc import Mapping
from typing import Any

from jobs.errors import Conflict, Invalid
from jobs.models.model import Model, base_of
from jobs.store.db import Tx
from jobs.store.registry import artifacts

_FILES = ("path", "sha256", "config_sha256", "artifact")
"""Fields of an adapter that decide what it answers."""


def check(tx: Tx, model: Model) -> None:
    """Raises Invalid or Conflict unless the artifacts of a version are there, that of a model for
    the model, and those of adapters for their base."""
    if model.artifact:
        _check(tx, model.artifact, "")
    for adapter in model.adapters:
        if adapter.artifact:
            _check(tx, adapter.artifact, base_of(model))


def _check(tx: Tx, digest: str, base: str) -> None:
    row = artifacts.get(tx, digest)
    if row is None:
        raise Invalid(f"there is no artifact {digest}: push its folder first")
    if row.state != "stored":
        raise Conflict(f"the files of {digest} were removed: push its folder again")
    if row.base != base:
        its, wanted = artifacts.described(row.base), artifacts.described(base)
        raise Conflict(f"the artifact {digest} was pushed as {its}, not as {wanted}")


def check_adapters(before: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
    """Raises Conflict where an adapter of an entry has other files than one of its name before."""
    old = {one["name"]: one for one in before.get("adapters", [])}
    for one in entry.get("adapters", []):
        known = old.get(one["name"], one)
        if any(known.get(field) != one.get(field) for field in _FILES):
            raise Conflict(
                f"the adapter {one['name']!r} has other files: an adapter never changes. Push "
                "this one under another name"
            )


def with_adapter(entry: Mapping[str, Any], adapter: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an entry with an adapter, in place of one of its name."""
    others = [one for one in entry.get("adapters", []) if one["name"] != adapter["name"]]
    return {**entry, "adapters": [*others, dict(adapter)]}
