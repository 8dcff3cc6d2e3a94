"""The command `millrace`. Each command says what it does, with an example, and exits non-zero on
failure; `--json` prints what a program can read."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click
import httpx

from jobs import ids, logs
from jobs.settings import Settings, SettingsError
from ops import configure
from ops.client import Client, Refused
from ops.progress import wait_with_bar


class Cli(click.Group):
    """Turns what users can mend into one clear line, and exits non-zero."""

    def invoke(self, ctx: click.Context) -> Any:
        from ops.embedded import EmbeddedError
        from ops.up import PortTaken

        try:
            return super().invoke(ctx)
        except (SettingsError, Refused, EmbeddedError, PortTaken) as error:
            raise click.ClickException(str(error)) from error
        except httpx.ConnectError as error:
            message = "no api answers there; start one with `millrace up`, or name it with --url"
            raise click.ClickException(message) from error
        except httpx.HTTPError as error:
            raise click.ClickException(f"the api: {error}") from error


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="millrace")
def main() -> None:
    """Durable batch inference with a low-latency path beside it."""


# -- processes


@main.command(epilog="Example: millrace up --workers 2")
@click.option("--workers", default=1, show_default=True, help="worker processes")
def up(workers: int) -> None:
    """Runs everything: embedded services, migrations, api, keeper, workers. Ctrl-C stops it."""
    from jobs import settings
    from ops.up import Platform, StopAsked

    logs.configure("up")
    stop_asked = StopAsked()
    platform = Platform(settings.load(), workers)
    platform.start(stop_asked)
    if not stop_asked():
        click.echo(f"ready: {platform.url} (API docs: {platform.url}/docs); Ctrl-C stops it")
    try:
        platform.run(stop_asked)
    finally:
        click.echo("stopping")
        platform.stop()


@main.command(epilog="Example: MILLRACE_PORT=8001 millrace api")
def api() -> None:
    """Serves HTTP; as many of them as you like."""
    from api.app import serve

    logs.configure("api")
    serve(configure.load())


@main.command(epilog="Example: millrace worker")
def worker() -> None:
    """Runs a worker of MILLRACE_POOL on one device; starts it again if it dies, hangs or grows."""
    from ops.processes import Supervisor
    from ops.up import StopAsked
    from ops.watched import WatchedWorker

    logs.configure("worker")
    Supervisor([WatchedWorker("worker", configure.load())]).run(StopAsked(), grace_s=30)


@main.command(epilog="Example: millrace keeper")
def keeper() -> None:
    """Does everything periodic: nudges, lapsed leases, expiry. Several may run."""
    from workers.keeper import run_keeper

    logs.configure("keeper")
    run_keeper(configure.load())


@main.command(epilog="Example: millrace migrate")
def migrate() -> None:
    """Brings the database's schema up to date. Safe to repeat, and to run several at once."""
    from jobs.store import db
    from migrations.run import migrate as run

    run(db.connect(configure.load().database_url, pool_size=1))
    click.echo("the database is up to date")


@main.command(epilog="Example: millrace check --json")
@click.option("--invariants", is_flag=True, help="ask the database whether its invariants hold")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def check(invariants: bool, as_json: bool) -> None:
    """Explains the configuration, and names everything that is wrong with it."""
    from ops import check as checks

    if invariants:
        sys.exit(_check_invariants(as_json))
    wrong = checks.problems()
    findings = [] if wrong else list(checks.explain(configure.load()))
    if as_json:
        values = {finding.name: finding.value for finding in findings}
        click.echo(json.dumps({"problems": wrong, "settings": values}))
    else:
        for finding in findings:
            click.echo(f"{finding.name:30} {finding.value or '-':40} {finding.help}")
        for problem in wrong:
            click.echo(f"problem: {problem}", err=True)
    sys.exit(1 if wrong else 0)


def _check_invariants(as_json: bool) -> int:
    """Prints each invariant and what breaks it; returns the exit status."""
    from ops import check as checks

    wrong = checks.problems()
    if wrong:
        raise SettingsError(wrong)
    found = list(checks.broken(configure.load()))
    if as_json:
        rows = [checks.as_json(invariant, broken) for invariant, broken in found]
        click.echo(json.dumps({"holds": not any(b for _, b in found), "invariants": rows}))
    else:
        for invariant, broken in found:
            click.echo("\n".join(checks.lines(invariant, broken)))
    return int(any(broken for _, broken in found))


# -- clients


def _client_command(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--json", "as_json", is_flag=True, help="print JSON")(function)
    return click.option("--url", envvar="MILLRACE_URL", help="the api's address")(function)


def _connect(url: str | None) -> Client:
    found: Settings = configure.load()
    return Client(url or f"http://{found.host}:{found.port}")


@main.command(epilog="Example: millrace submit texts.jsonl --model minilm --wait -o out.jsonl")
@click.argument("file", type=click.File("rb"))
@click.option("--model", required=True, help="name, or name@version")
@click.option("--params", help="the model's parameters, as a JSON object")
@click.option("--class", "job_class", help="interactive, standard or bulk")
@click.option("--priority", type=int, help="-100 to 100, higher first")
@click.option("--webhook", help="URL to tell when it has ended")
@click.option("--wait", is_flag=True, help="show progress until it has ended")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="write results here")
@_client_command
def submit(
    file: BinaryIO,
    webhook: str | None,
    wait: bool,
    output: Path | None,
    url: str | None,
    as_json: bool,
    **order: Any,
) -> None:
    """Submits FILE as one job: .jsonl and .ndjson hold one item a line as JSON, anything else one
    text a line; "-" is standard input, as JSON lines."""
    client = _connect(url)
    query = {name.replace("job_", ""): value for name, value in order.items() if value is not None}
    if webhook:
        query["webhook"] = json.dumps({"url": webhook})
    job = client.submit(_items(file), **query)
    if wait or output:
        job = client.wait(job["id"]) if as_json else wait_with_bar(client, job)
    if output:
        with output.open("w") as out:
            out.writelines(line + "\n" for line in client.results(job["id"]))
    _show_job(job, as_json)


class _Again:
    """The lines of a file as JSON, as often as they are asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._start = file, file.tell()

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(self._start)
        return _json_lines(self._file)


def _items(file: BinaryIO) -> Iterable[bytes]:
    return _Again(file) if file.seekable() else _json_lines(file)


def _json_lines(file: BinaryIO) -> Iterator[bytes]:
    is_json = file.name.endswith((".jsonl", ".ndjson")) or file.name in ("-", "<stdin>")
    for line in file:
        text = line.rstrip(b"\r\n")
        yield (text if is_json else json.dumps(text.decode("utf-8")).encode()) + b"\n"


def _show_job(job: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(job))
        return
    counts = ", ".join(f"{count} {name}" for name, count in job["counts"].items() if count)
    click.echo(f"{job['id']}  {job['model']}@{job['version']}  {job['state']}  {counts}")


@main.command("jobs", epilog="Example: millrace jobs --state running")
@click.option("--state", help="of this state alone")
@click.option("--model", help="of this model alone")
@click.option("--limit", default=20, show_default=True)
@_client_command
def list_jobs(url: str | None, as_json: bool, **query: Any) -> None:
    """Lists jobs, the newest first."""
    params = {name: value for name, value in query.items() if value is not None}
    page = _connect(url).request("GET", "/jobs", params=params)
    if as_json:
        click.echo(json.dumps(page))
        return
    for job in page["data"]:
        _show_job(job, False)


@main.command(epilog="Example: millrace job job_01kajf…")
@click.argument("id")
@_client_command
def job(id: str, url: str | None, as_json: bool) -> None:
    """Shows one job."""
    _show_job(_connect(url).job(id), as_json)


@main.command(epilog="Example: millrace results job_01kajf… --after 999 > rest.jsonl")
@click.argument("id")
@click.option("--after", default=-1, help="only results after this seq")
@click.option("--gaps", is_flag=True, help="past items that have no result yet")
@_client_command
def results(id: str, after: int, gaps: bool, url: str | None, as_json: bool) -> None:
    """Prints a job's results in order, as JSON lines; while it runs, those that are there."""
    for line in _connect(url).results(id, after=after, gaps=gaps):
        click.echo(line)


def _verb(name: str, help: str) -> None:
    @main.command(name, help=help, epilog=f"Example: millrace {name} job_01kajf…")
    @click.argument("id")
    @_client_command
    def run(id: str, url: str | None, as_json: bool) -> None:
        _show_job(_connect(url).request("POST", f"/jobs/{id}/{name}"), as_json)


_verb("cancel", "Cancels a job; results that are there are kept.")
_verb("pause", "Starts nothing more of a job.")
_verb("resume", "Goes on with a paused job.")
_verb("retry", "Runs what did not succeed in a finished job again.")


@main.command(epilog="Example: millrace delete job_01kajf…")
@click.argument("id")
@_client_command
def delete(id: str, url: str | None, as_json: bool) -> None:
    """Removes a finished job, with its items and results, for ever."""
    _connect(url).delete(id)
    click.echo(json.dumps({"id": id, "deleted": True}) if as_json else f"{id}  deleted")


@main.command(epilog="Example: millrace webhooks job_01kajf…")
@click.argument("id")
@_client_command
def webhooks(id: str, url: str | None, as_json: bool) -> None:
    """Lists what was sent, or is to be sent, when a job ended."""
    found = _connect(url).request("GET", f"/jobs/{id}/webhooks")
    if as_json:
        click.echo(json.dumps(found))
        return
    for delivery in found["data"]:
        _show_delivery(delivery, False)


@main.command(epilog="Example: millrace redeliver job_01kajf…")
@click.argument("id")
@_client_command
def redeliver(id: str, url: str | None, as_json: bool) -> None:
    """Sends a job's latest webhook again, under the same webhook-id."""
    found = _connect(url).request("POST", f"/jobs/{id}/webhooks/redeliver")
    _show_delivery(found, as_json)


def _show_delivery(delivery: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(delivery))
        return
    next_try = delivery["next_try_at"] and f"next try {delivery['next_try_at']}"
    notes = filter(None, (delivery["last_error"], next_try))
    tries = f"{delivery['state']} after {delivery['tries']} tries"
    click.echo("  ".join([delivery["id"], delivery["type"], tries, *notes]))


@main.command("webhook-secret", epilog="Example: millrace webhook-secret --rotate")
@click.option("--rotate", is_flag=True, help="make a new one; the old one signs for 24 h more")
@_client_command
def webhook_secret(rotate: bool, url: str | None, as_json: bool) -> None:
    """Shows the secret that verifies webhooks: once, when it was made."""
    found = _connect(url).request("POST" if rotate else "GET", "/webhooks/secret")
    if as_json:
        click.echo(json.dumps(found))
        return
    shown = f"made {found['created_at']}; it was shown before, --rotate makes a new one"
    click.echo(found["secret"] or shown)


@main.command(epilog='Example: millrace infer --model minilm "how do I parse JSON"')
@click.argument("text")
@click.option("--model", required=True)
@click.option("--timeout-ms", default=10_000, show_default=True)
@_client_command
def infer(text: str, model: str, timeout_ms: int, url: str | None, as_json: bool) -> None:
    """Makes one call and prints its output."""
    answer = _connect(url).infer(model, text, timeout_ms, key=str(ids.new()))
    click.echo(json.dumps(answer if as_json else answer["output"]))


@main.command(epilog="Example: millrace demo")
def demo() -> None:
    """Embeds the standard library's docstrings, and finds functions by meaning."""
    from ops.demo import run

    run()


@main.group(epilog="Example: millrace bench echo")
def bench() -> None:
    """Measures. Starts what it needs, and ends with one line of JSON."""


def _bench(name: str, help: str) -> None:
    @bench.command(name, help=help, epilog=f"Example: millrace bench {name}")
    def run() -> None:
        from importlib import import_module

        import_module(f"ops.bench.{name}").run()


_bench("echo", "What the platform itself costs, in time and in memory.")
_bench("embed", "A job of embeddings through the platform, and the library alone.")


@bench.command(epilog="Example: millrace bench durable")
@click.option("--scale", type=click.FloatRange(0.001, 1), default=1.0, help="a share of its items")
def durable(scale: float) -> None:
    """The durable path against bare SQL and plain Celery; its growth; small jobs beside large."""
    from ops.bench.durable import run

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
