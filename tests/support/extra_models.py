"""Models that a test module brings to a platform that runs: added to its models file, and taken out
of it at the end."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import text

from ops.supervisor.platform import Platform
from tests.support.keys import make_key_at
from tests.support.stores.transactions import connected
from tests.support.wait import eventually

_HELD = text("""
    SELECT DISTINCT m.model FROM worker_models m JOIN workers w USING (incarnation)
    WHERE w.ended_at IS NULL
""")


@contextmanager
def extra_models(
    platform: Platform, models: str, files: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Serves models until the block ends. models: entries of a models file, in TOML; files: name
    and text of files beside it."""
    if not models:
        yield
        return
    path = platform.settings.models
    assert path, "the platform has no models file to add to"
    for name, content in (files or {}).items():
        (path.parent / name).write_text(content)
    before = path.read_text()
    entries = tomllib.loads(models)["model"]
    keys = {_key(entry) for entry in entries}
    twice = keys & {_key(entry) for entry in tomllib.loads(before)["model"]}
    assert not twice, f"the platform has {twice} itself"
    waiting = {_key(entry) for entry in entries if not entry.get("on_demand")}
    # Workers keep for seconds what has been removed; only a model of the same name is in the way.
    eventually(lambda: not keys & _held(platform))
    _replace(path, f"{before}\n{models}")
    with httpx.Client(base_url=platform.url, headers=_headers(platform)) as http:
        eventually(lambda: all(_status(http, key) != httpx.codes.NOT_FOUND for key in keys))
        eventually(lambda: all(_status(http, key) == httpx.codes.OK for key in waiting))
        yield
        _replace(path, before)
        eventually(lambda: all(_status(http, key) == httpx.codes.NOT_FOUND for key in keys))


def _key(entry: dict[str, Any]) -> str:
    return f"{entry['name']}@{entry['version']}"


def _held(platform: Platform) -> set[str]:
    with connected(platform.settings.database_url) as database, database.begin() as tx:
        return {model for (model,) in tx.execute(_HELD)}


def _replace(path: Path, content: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(content)
    os.replace(fresh, path)


def _status(http: httpx.Client, key: str) -> int:
    return http.get(f"/models/{key}/ready").status_code


def _headers(platform: Platform) -> dict[str, str]:
    if httpx.get(f"{platform.url}/jobs").status_code != httpx.codes.UNAUTHORIZED:
        return {}
    key, _ = make_key_at(platform.settings.database_url, "extra-models")
    return {"Authorization": f"Bearer {key}"}
