"""Answers of a registered version on this machine: loaded as a worker does, and asked as its probe
is."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import click
from sqlalchemy import Engine as Database

from jobs.models.model import Model
from jobs.models.probe import Probe
from jobs.settings import Settings
from workers.device import probe
from workers.engines import registry as engines
from workers.engines.common import user_code
from workers.engines.generator import Generator
from workers.engines.protocol import Engine
from workers.process.artifacts.staging import Stager

_SAMPLES = 8  # of the engine, where no inputs are given


def ask(
    settings: Settings,
    database: Database,
    model: Model,
    inputs: Sequence[Any],
    params: Mapping[str, Any],
    tolerance: float,
) -> Probe:
    """Returns inputs with the answers that a version gives to them. inputs: (): samples of its
    engine. Raises ClickException where it can't be loaded, or doesn't answer."""
    user_code.search_beside(settings.models)
    stager = Stager(settings, database)
    try:
        staged = model
        if model.artifact:
            staged = stager.stage(model, stager.verify(model.artifact), lambda: False)
        engine = engines.load(staged, settings.device)
        try:
            asked = list(inputs) or _samples(engine)
            return Probe(asked, probe.answers(staged, engine, asked, params), tolerance, params)
        finally:
            engine.close()
    except click.ClickException:
        raise
    except (Exception, SystemExit) as error:
        raise click.ClickException(f"{model.key}: {type(error).__name__}: {error}") from error
    finally:
        stager.release(model)


def _samples(engine: Engine | Generator) -> list[Any]:
    samples = [] if isinstance(engine, Generator) else list(islice(engine.samples(), _SAMPLES))
    if not samples:
        raise click.UsageError("its engine has no samples: give inputs by --input")
    return samples
