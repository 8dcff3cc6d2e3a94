"""Commands that show and measure a platform, which they start themselves."""

import json
from functools import partial

import click

from ops.cli.commands.common import as_json_option


@click.command(epilog="Example: millrace demo")
@as_json_option
def demo(as_json: bool) -> None:
    """Embeds the standard library's docstrings, and finds functions by meaning."""
    from ops.demo.run import run

    found = run(partial(click.echo, err=as_json))
    if as_json:
        click.echo(json.dumps(found))


@click.group(epilog="Example: millrace bench echo")
def bench() -> None:
    """Measures. Starts what it needs, and ends with one line of JSON."""


def _bench(name: str, help: str, module: str = "") -> None:
    @bench.command(name, help=help, epilog=f"Example: millrace bench {name}")
    def run() -> None:
        from importlib import import_module

        import_module(f"ops.bench.scenarios.{module or name}").run()


_bench("echo", "What the platform itself costs, in time and in memory.")
_bench(
    "spacing",
    "How long a call should wait for others: four policies, simulated.",
    "batching_delay",
)
_bench("embed", "A job of embeddings through the platform, and the library alone.")


def _bench_of_calls(name: str, help: str, module: str = "") -> None:
    @bench.command(name, help=help, epilog=f"Example: millrace bench {name} --quick")
    @click.option("--quick", is_flag=True, help="one short round: does it work? no figures")
    def run(quick: bool) -> None:
        from importlib import import_module

        from ops.bench.harness.scale import FULL, QUICK

        import_module(f"ops.bench.{module or f'scenarios.{name}'}").run(QUICK if quick else FULL)


_bench_of_calls("calls", "Single calls on six processes beside mosec, by load.")
_bench_of_calls(
    "together",
    "Calls and a job on the same processes, and each alone.",
    "scenarios.calls_and_jobs",
)
_bench_of_calls("overload", "One worker that is offered three times what it can do.")
_bench_of_calls(
    "lengths",
    "Calls of mixed length: padding, buckets, the latency model.",
    "scenarios.mixed_lengths",
)
_bench_of_calls(
    "doors",
    "What a call costs through other doors than /infer.",
    "scenarios.compat_routes",
)
_bench_of_calls("instrumentation", "What metrics, traces and logs cost: with all of it, and none.")
_bench_of_calls("dashboard", "Pages over 100,000 jobs of 1,000,000 items, and what one costs.")
_bench_of_calls(
    "trace",
    "The arrivals of a real service, replayed, beside the simulator.",
    "scenarios.trace_replay",
)
_bench_of_calls(
    "batches",
    "A large file through OpenAI's door, beside calls.",
    "scenarios.openai_batch",
)
_bench_of_calls(
    "fairness", "Small tenants beside one that floods; shares by weight.", "fairness.run"
)
_bench_of_calls(
    "upstream",
    "A model that someone else serves: batches, the limit that is found, half of it gone.",
)


@bench.command(epilog="Example: millrace bench gpu")
@click.option("--device", default="cuda", show_default=True, help="cuda, or cpu for a small trial")
@click.option("--quick", is_flag=True, help="one short run of each: does it work?")
def gpu(device: str, quick: bool) -> None:
    """Jobs on a GPU against a bare loop there; how busy it is; calls beside a job."""
    from ops.bench.scenarios.gpu import run

    run(device, quick)


@bench.command(epilog="Example: millrace bench durable")
@click.option("--scale", type=click.FloatRange(0.001, 1), default=1.0, help="a share of its items")
def durable(scale: float) -> None:
    """The durable path against bare SQL and plain Celery; its growth; small jobs beside large."""
    from ops.bench.scenarios.durable import run

    run(scale)


@bench.command(epilog="Example: millrace bench chaos --seed 7 --minutes 20 --faults 1000 --record")
@click.option("--seed", default=1, show_default=True, help="of the schedule and the jobs")
@click.option(
    "--minutes",
    type=click.FloatRange(0.05),
    default=3.0,
    show_default=True,
    help="how long faults go on",
)
@click.option("--faults", type=click.IntRange(1), help="how many; without it, 50 a minute")
@click.option("--record", "recorded", is_flag=True, help="write ops/docs/reliability.md")
def chaos(seed: int, minutes: float, faults: int | None, recorded: bool) -> None:
    """Kills, stops and cuts off real processes while jobs run, and checks that nothing is lost."""
    from ops.bench.chaos.run import run

    run(seed, minutes, faults, recorded)


@bench.command(epilog="Example: millrace bench fuzz --seed 7")
@click.option("--inputs", default=1_000_000, show_default=True, help="in all")
@click.option("--seed", default=1, show_default=True, help="the same seed makes the same inputs")
def fuzz(inputs: int, seed: int) -> None:
    """Hostile inputs for everything that reads what clients send: nothing may escape."""
    from ops.bench.scenarios.fuzz import run

    run(inputs, seed)


@bench.command(epilog="Example: millrace bench schema --cases 2000")
@click.option("--cases", default=10_000, show_default=True, help="with a key, and without")
@click.option("--seed", default=1, show_default=True, help="of the requests")
def schema(cases: int, seed: int) -> None:
    """Requests made up from /openapi.json: is every answer as documented, and soon?"""
    from ops.bench.scenarios.schemathesis import run

    run(cases, seed)


COMMANDS = (demo, bench)
