"""A model that generates on a platform, beside its engine in a process of its own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.bench.baselines.generators import Generated, Order, generator
from ops.bench.generation import chats
from ops.bench.harness.platform import own_platform
from ops.bench.load import chats as streams
from ops.bench.load.client import Client, CompletedJob
from ops.supervisor.platform import Platform

Run = Callable[[Order], Generated]


@dataclass(frozen=True, slots=True)
class Target:
    """One model."""

    platform: Platform
    client: Client
    name: str  #: of the model
    bare: Run  #: drives its engine
    places: int  #: streams at a time

    def run_job(self, bodies: Sequence[dict[str, Any]]) -> CompletedJob:
        """Runs a job of these chats."""
        return self.client.run_job(self.name, [{"input": body} for body in bodies])

    def chats(self, bodies: Sequence[dict[str, Any]], at_once: int) -> list[streams.StreamedChat]:
        """Streams chats, so many at a time."""
        found: list[streams.StreamedChat] = streams.run(
            self.platform.url, self.name, lambda client: streams.at_once(client, bodies, at_once)
        )
        return found

    def stream(self, bodies: Sequence[dict[str, Any]]) -> list[str]:
        """Streams chats into all places; returns their texts."""
        return [chat.text for chat in self.chats(bodies, self.places)]


@contextmanager
def started(models: Path, name: str, places: int) -> Iterator[Target]:
    """Starts a platform with the model, which is loaded, and its engine alone."""
    with (
        own_platform(models=models.read_text()) as platform,
        closing(Client(platform.url)) as client,
        generator("bare", models, name) as bare,
    ):
        target = Target(platform, client, name, bare, places)
        target.run_job(chats.questions(1, max_tokens=1))
        yield target
