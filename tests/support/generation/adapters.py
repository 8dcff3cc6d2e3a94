"""Adapters of random matrices, as tests declare them."""

import json

from jobs.models.adapters import Adapter
from ops.bench.harness.random_adapters import (
    ATTENTION,
    declared,
    llama_shapes,
    merge_llama,
    merged,
    save,
)

__all__ = ["ATTENTION", "declared", "entry", "llama_shapes", "merge_llama", "merged", "save"]


def entry(adapter: Adapter) -> str:
    """Returns the declaration as TOML, below its [[model]]."""
    tenants = f"tenants = {json.dumps(adapter.tenants)}\n" if adapter.tenants is not None else ""
    return (
        f"[[model.adapters]]\nname = {json.dumps(adapter.name)}\n"
        f"path = {json.dumps(adapter.path)}\nsha256 = {json.dumps(adapter.sha256)}\n"
        f"pinned = {json.dumps(adapter.pinned)}\n{tenants}"
    )
