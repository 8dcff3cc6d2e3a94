"""Commands that measure a platform, which they start themselves, by code of a checkout."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click


def _scale(_context: click.Context, _option: click.Parameter, quick: bool) -> Any:
    if not _is_here():
        return None
    scale = import_module("ops.bench.harness.scale")
    return scale.QUICK if quick else scale.FULL


def _is_here() -> bool:
    return find_spec("ops.bench") is not None


@click.group(epilog="Example: millrace bench echo")
def bench() -> None:
    """Runs a benchmark of a checkout. Starts what it needs, and ends with one line of JSON."""


def _scenario(
    name: str, help: str, module: str = "", *options: Callable[[Any], Any], example: str = ""
) -> None:
    """Declares a command that passes its options to `run` of a module of ops.bench.

    module: default: the scenario of that name.
    """
    path = module if "." in module else f"scenarios.{module or name}"

    def run(**values: Any) -> None:
        """Runs the scenario."""
        if not _is_here():
            raise click.ClickException(_ELSEWHERE)
        import_module(f"ops.bench.{path}").run(**values)

    for option in reversed(options):
        run = option(run)
    epilog = f"Example: millrace bench {name} {example}".rstrip()
    bench.command(name, help=help, epilog=epilog)(run)


_ELSEWHERE = (
    "benchmarks aren't part of an installed wheel: run them in a checkout of Millrace's "
    "repository, by `make bench`, then `.venv/bin/millrace bench …`"
)
_QUICK = click.option(
    "--quick",
    "scale",
    is_flag=True,
    callback=_scale,
    help="Run one short round to see that it works; its figures don't count.",
)
_PARTS = click.option(
    "--part", "parts", multiple=True, help="Measure this part alone; may be repeated."
)
_SEED = click.option("--seed", default=1, show_default=True, help="Seed of what is random.")

_scenario("echo", "Measures the cost of the platform itself, in time and in memory.")
_scenario(
    "spacing", "Simulates four policies for how long a call waits for others.", "batching_delay"
)
_scenario("embed", "Compares a job of embeddings with the library alone.")
for _name, _help, _module in (
    ("calls", "Compares single calls on six processes with mosec, by load.", ""),
    (
        "together",
        "Measures calls and a job on the same processes, and each alone.",
        "calls_and_jobs",
    ),
    ("overload", "Measures one worker under three times its capacity.", ""),
    ("burst", "Measures up to ten thousand calls at one moment.", ""),
    (
        "lengths",
        "Measures calls of mixed length: padding, buckets, the latency model.",
        "mixed_lengths",
    ),
    ("compat", "Measures the cost of a call through other routes than /infer.", "compat_routes"),
    ("instrumentation", "Measures the cost of metrics, traces and logs.", ""),
    ("dashboard", "Measures pages over 100,000 jobs of 1,000,000 items.", ""),
    ("lighthouse", "Scores the dashboard's pages by Lighthouse, on a phone and a desktop.", ""),
    ("trace", "Replays the arrivals of a service, live and in the simulator.", "trace_replay"),
    (
        "batches",
        "Measures a large file through OpenAI's Batch API, and calls meanwhile.",
        "openai_batch",
    ),
    (
        "fairness",
        "Measures small tenants next to one that floods, and shares by weight.",
        "fairness.run",
    ),
    (
        "flood",
        "Measures small tenants next to calls at two and five times what is carried.",
        "fairness.beyond",
    ),
    ("client", "Compares the Python client with the lean one of `echo`; measures its memory.", ""),
    ("cli", "Measures the time in which the command line answers.", ""),
    ("idle", "Measures CPU and memory of a platform with nothing to do, and its start.", ""),
    ("isolation", "Measures a tenant beside one that takes all it can get.", ""),
    ("vectors", "Measures the host's part of a job of embeddings, and calls beside it.", ""),
    ("upstream", "Measures batches on a model behind an HTTP API that loses half its slots.", ""),
):
    _scenario(_name, _help, _module, _QUICK, example="--quick")
_scenario(
    "inference",
    "Measures the batchstring service: p95 at a rate, and what simulated devices do.",
    "",
    click.option("--rate", type=click.IntRange(1), default=1000, show_default=True,
                 help="Requests a second."),
    click.option("--devices", type=click.IntRange(1), default=6, show_default=True,
                 help="Devices, of 100 ms for up to 100 requests."),
    _QUICK,
    example="--rate 300 --quick",
)  # fmt: skip
_scenario(
    "many",
    "Compares the cost of a call and an item with few and many jobs, tenants, models, processes.",
    "many",
    click.option(
        "--row",
        "rows",
        multiple=True,
        type=click.Choice(["jobs", "tenants", "models", "calls", "workers", "apis"]),
        help="Measure this row alone; may be given again.",
    ),
    _QUICK,
    example="--row jobs --row tenants",
)
_scenario(
    "generate",
    "Measures models that generate: rate and text beside the bare engine, streams, cancels.",
    "generation.run",
    click.option(
        "--llamacpp",
        default="",
        metavar="PYTHON",
        help="Compare CPU with llama.cpp: the Python of an environment with llama-cpp-python.",
    ),
    _QUICK,
    example="--quick",
)
_scenario(
    "streams",
    "Kills workers and apis under streams that go on: what is lost, and how long they stand still.",
    "streams.run",
    _PARTS,
    _QUICK,
    example="--quick --part faults",
)
_scenario(
    "rollout",
    "Measures versions that arrive: rollouts, aliases, splits, shadows, artifacts.",
    "rollout.run",
    _PARTS,
    _QUICK,
    example="--quick --part detection",
)
_scenario(
    "scaling",
    "Simulates the autoscaler and pools of several kinds; follows a step live.",
    "scaling.run",
    _PARTS,
    _QUICK,
    example="--part simulated",
)
_DEVICE = click.option(
    "--device", default="cuda", show_default=True, help="Device: cuda, or cpu for a trial."
)
_ONCE = click.option("--quick", is_flag=True, help="Run each part once, to see that it works.")
_scenario(
    "generate-gpu",
    "Measures a Llama of 1 B parameters on a GPU: rate, time to the first token, KV cache.",
    "generation.gpu",
    _DEVICE,
    _ONCE,
    example="--device cpu",
)
_scenario(
    "gpu",
    "Compares jobs on a GPU with a bare loop there, and measures calls during a job.",
    "gpu.run",
    _DEVICE,
    _ONCE,
    _PARTS,
    example="--part minilm",
)
_scenario(
    "durable",
    "Compares the durable path with bare SQL and plain Celery; measures its growth.",
    "durable",
    click.option(
        "--scale", "share", type=click.FloatRange(0.001, 1), default=1.0, help="Share of its items."
    ),
)
_scenario(
    "chaos",
    "Kills, stops and cuts off real processes while jobs run, and checks that nothing is lost.",
    "chaos.run",
    _SEED,
    click.option(
        "--minutes",
        type=click.FloatRange(0.05),
        default=3.0,
        show_default=True,
        help="Duration of the faults.",
    ),
    click.option(
        "--faults", type=click.IntRange(1), help="Number of faults; default: 50 a minute."
    ),
    click.option(
        "--record", "recorded", is_flag=True, help="Write ops/docs/explanation/reliability.md."
    ),
    example="--seed 7 --minutes 20 --faults 1000 --record",
)
_scenario(
    "fuzz",
    "Feeds hostile inputs to everything that reads what clients send.",
    "fuzz",
    click.option("--inputs", default=1_000_000, show_default=True, help="Number of inputs."),
    click.option("--tables", default=10_000, show_default=True, help="Tables for each door."),
    _SEED,
    example="--seed 7",
)
_scenario(
    "schema",
    "Sends requests generated from /openapi.json, and checks each response against it.",
    "schemathesis",
    click.option(
        "--cases", default=10_000, show_default=True, help="Requests with a key, and without."
    ),
    _SEED,
    example="--cases 2000",
)
