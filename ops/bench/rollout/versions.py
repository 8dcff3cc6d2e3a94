"""Versions of a model that are rolled out: each answers a text with its own name and the launch
that the text was in."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from millrace import Client
from ops.bench.chaos.fleet import Fleet
from ops.bench.chaos.serving import await_model, serving_fleet

NAME = "x"
FAILURE = "fails on purpose"
"""Part of the error of a call that a version fails."""

_NONE = "model = []\n"
_CODE = """
import itertools, os, time, zlib

SAMPLES = ["warm"]
_launches = itertools.count()


def predict(batch):
    launch = f"{{os.getpid()}}-{{next(_launches)}}"
    time.sleep({launch_s})
    return [_answer(text, launch) for text in batch]


def _answer(text, launch):
    if zlib.crc32(text.encode()) % 10_000 < {fails} * 10_000:
        return ValueError("{failure}")
    return "{version} " + launch
"""


@dataclass(frozen=True, slots=True)
class Version:
    """One version."""

    version: str
    launch_s: float = 0.01
    fails: float = 0.0  #: share of the texts
    price: float = 0.0  #: of a thousand characters


class Target:
    """Fleet with versions in its registry."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._clients = [Client(url) for url in fleet.urls]

    def close(self) -> None:
        """Closes the connections."""
        for client in self._clients:
            client.close()

    def ask(self, method: str, path: str, body: Any = None, api: int = 0) -> Any:
        """Returns what an api answers; api: any number. Raises APIStatusError."""
        client = self._clients[api % len(self._clients)]
        return client.request(method, path, json=body)

    def push(self, one: Version) -> None:
        """Registers a version, and waits until all workers are ready for it."""
        code = self.fleet.home / f"version_{one.version}.py"
        code.write_text(_CODE.format(**asdict(one), failure=FAILURE))
        entry = {"engine": "python", "options": {"file": str(code)}}
        if one.price:
            entry["price"] = {"per_1k_units": one.price}
        self.ask("POST", "/admin/models", {"name": NAME, "version": one.version, "entry": entry})
        await_model(self.fleet, f"{NAME}@{one.version}")

    def alias(self, version: str, api: int = 0) -> None:
        """Points the alias `stable`."""
        self.ask("PUT", f"/admin/models/{NAME}/aliases/stable", {"version": version}, api)

    def start(self, canary: str, **policy: Any) -> str:
        """Starts a rollout of a version after the first one; returns its id."""
        body = {"model": NAME, "stable": "1", "canary": canary, "policy": policy}
        return str(self.ask("POST", "/rollouts", body)["id"])

    def rollout(self, id: str) -> Any:
        """Returns a rollout with its events."""
        return self.ask("GET", f"/rollouts/{id}")


@contextmanager
def target_of(*versions: Version) -> Iterator[Target]:
    """Starts a fleet, and registers the versions."""
    with serving_fleet(_NONE) as fleet, closing(Target(fleet)) as target:
        for one in versions:
            target.push(one)
        yield target
