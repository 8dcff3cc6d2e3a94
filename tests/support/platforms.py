"""Whole platforms for tests, as `millrace up` starts them, from a prepared database folder.

A module names one of the six shared platforms, and what it shall serve for this module:

    PLATFORM = OPEN
    MODELS = entries  # TOML added to the platform's models file, and taken out at the end
    FILES = {"model.py": CODE}  # files beside the models file

Modules of one platform run one after the other in one process of xdist, so that it starts once in a
run; their tests keep to models and tenants of their own. Where processes are killed, frozen or
starved, everything that a platform did is counted, or settings are no constants, a test starts its
own:

    with platforms.running(spec(MODELS), broker_url=url) as platform:
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine as Database

from jobs.models import builtin_models
from jobs.store import db
from migrations.run import migrate
from ops.bench.harness.models_files import models_file, sample
from ops.embedded import postgres
from ops.embedded.servers import EmbeddedServers
from ops.supervisor.platform import Platform
from ops.supervisor.platform import running as running_platform
from tests.support.clients import repeated
from tests.support.extra_models import extra_models
from tests.support.keys import make_key_at
from tests.support.models.entries import model
from tests.support.pace import pace
from tests.support.stores.transactions import connected
from tests.support.wait import eventually

LIGHT = models_file(sample("echo"), sample("batchstring"))
"""Two models without torch, whose import and warm-up are most of a platform's start."""
SAMPLES = ""
"""The built-in models, MiniLM among them."""


@dataclass(frozen=True)
class PlatformSpec:
    """Models and settings of a platform; equal ones are one platform."""

    models: str  #: text of the models file; empty: the built-in samples
    workers: int  #: worker processes
    is_closed: bool  #: keys are there from the start, so nobody comes in without one
    files: tuple[tuple[str, str], ...]  #: name and text of files beside the models file
    settings: tuple[tuple[str, Any], ...]  #: what differs from the defaults, sorted by name


def spec(
    models: str = LIGHT,
    *,
    workers: int = 1,
    is_closed: bool = False,
    files: Mapping[str, str] | None = None,
    **settings: Any,
) -> PlatformSpec:
    given = tuple(sorted((files or {}).items()))
    return PlatformSpec(models, workers, is_closed, given, tuple(sorted(settings.items())))


_USUAL: dict[str, Any] = {
    "lease_s": 6.0 * pace(),
    "max_file_mb": 64,
    "max_json_mb": 1,
    "webhook_allow": "127.0.0.1",
    "fetch_allow": "127.0.0.1",
}
_SAMPLES = models_file(*builtin_models.SAMPLES)
OPEN = spec(_SAMPLES, **_USUAL, inference_model="service")
"""The samples, where everybody is let in as the admin of the tenant "default"."""
CLOSED = spec(_SAMPLES, is_closed=True, **_USUAL)
"""The samples, where keys are asked for."""
CHATTING = spec(
    LIGHT + models_file(sample("minilm", target_ms=5000, accept_token_ids=True)),
    is_closed=True,
    blob_over_kb=1,
    **_USUAL,
)
"""For the APIs of other systems: keys are asked for, and payloads over 1 KiB are blobs."""
GENERATING = spec(LIGHT, **_USUAL)
"""For models that generate; everybody is let in."""
TWO_WORKERS = spec(LIGHT, workers=2, **_USUAL)
"""Two workers, which modules may drain or kill as long as they wait for the next one."""
POOLS = spec(
    LIGHT + model("prepared", "python", prepare="pool", file="prepared.py"),
    files={"prepared.py": 'SAMPLES = ["warm"]\nprepare = str\npredict = list\n'},
    blob_over_kb=1,
    **_USUAL,
)
"""A worker of the pool that prepares, beside one that serves."""
SHARED = (OPEN, CLOSED, CHATTING, GENERATING, TWO_WORKERS, POOLS)


STARTED: Counter[str] = Counter()
"""Platforms that this process has started: `shared` and `own`."""


class Platforms:
    """Starts platforms, and keeps the one that was shared last."""

    def __init__(self, new_folder: Callable[[str], Path], template: Path) -> None:
        self._new_folder, self._template = new_folder, template
        self._shared: tuple[PlatformSpec, Platform] | None = None
        self._stack = ExitStack()

    @contextmanager
    def shared(
        self, asked: PlatformSpec, models: str = "", files: Mapping[str, str] | None = None
    ) -> Iterator[Platform]:
        """Lends a shared platform, which serves these models too: the running one, or a new one in
        its place."""
        if self._shared is None or self._shared[0] != asked:
            self.close()
            self._shared = asked, self._stack.enter_context(self._start(asked))
            STARTED["shared" if asked in SHARED else "own"] += 1
        platform = self._shared[1]
        platform.poll()  # a worker that the tests before have killed
        try:
            with extra_models(platform, models, files):
                yield platform
        except BaseException:
            self.close()  # the next module gets a new one: this one may not be as it was
            raise

    def close(self) -> None:
        self._shared = None
        self._stack.close()

    @contextmanager
    def running(self, asked: PlatformSpec | None = None, **settings: Any) -> Iterator[Platform]:
        """A platform of the caller's own; settings: those that are no constants."""
        STARTED["own"] += 1
        with self._start(asked or spec(), **settings) as started:
            yield started

    @contextmanager
    def _start(self, asked: PlatformSpec, **settings: Any) -> Iterator[Platform]:
        folder = self._new_folder("platform")
        for name, text in asked.files:
            (folder / name).write_text(text)
        given = dict(asked.settings) | settings
        if asked.models:
            given["models"] = folder / "models.toml"
            given["models"].write_text(asked.models)
        home = given.pop("home", folder / "home")
        if "database_url" not in given:
            copy_database(self._template, home)
        copy_launch_times(self._template, home)
        with running_platform(home, asked.workers, **given) as started:
            copy_launch_times(home, self._template)
            if asked.is_closed:
                close_the_door(started)
            yield started


def close_the_door(platform: Platform) -> None:
    """Makes the first key: from then on nobody comes in without one."""
    make_key_at(platform.settings.database_url, "first")
    eventually(lambda: httpx.get(f"{platform.url}/jobs").status_code == 401)


@contextmanager
def supervised(platform: Platform) -> Iterator[None]:
    """Lets the supervisor act meanwhile: it starts again what ends, and kills what hangs."""
    with repeated(lambda _: platform.poll(), callers=1, pause_s=0.05):
        yield


@contextmanager
def database_of(platform: Platform) -> Iterator[Database]:
    with connected(platform.settings.database_url, pool_size=1) as engine:
        yield engine


@contextmanager
def transaction(platform: Platform) -> Iterator[db.Tx]:
    with database_of(platform) as database, database.begin() as tx:
        yield tx


def database_template(folder: Path) -> Path:
    """A home whose stopped database has the schema; made once for all processes of xdist."""
    folder.mkdir(mode=0o711, exist_ok=True)
    home = folder / "home"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(home, ignore_errors=True)
            with EmbeddedServers(home, redis=False).running() as servers:
                engine = db.connect(servers.postgres.url, pool_size=1)
                migrate(engine)
                engine.dispose()
            (folder / "made").touch()
    return home


def copy_database(template: Path, home: Path) -> None:
    """Saves initdb and the migrations, unless the home has a database."""
    if (home / "postgres").exists():
        return
    home.mkdir(mode=0o711, parents=True, exist_ok=True)
    command = ["cp", "-a", "--reflink=auto", template / "postgres", home / "postgres"]
    subprocess.run(command, check=True)


def copy_launch_times(source: Path, home: Path) -> None:
    """Copies what loads of models measured, which the next load of the same model only checks: a
    sweep over MiniLM's sizes is most of the CPU time that a platform takes to start."""
    folder = home / "launch-times"
    for path in source.glob("launch-times/*.json"):
        if not (folder / path.name).exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
                file.write(path.read_text())
            os.replace(file.name, folder / path.name)


@contextmanager
def no_durability(**more: str) -> Iterator[None]:
    """Databases that start here don't wait for the disk: what dies in tests is a process."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"fsync": "off", **more}.items():
            patch.setitem(postgres.SETTINGS, name, value)
        yield
