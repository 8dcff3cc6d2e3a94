"""Options and output of commands that talk to an api."""

import json
from collections.abc import Callable
from functools import reduce
from typing import Any

import click
import httpx

from jobs.settings import Settings, SettingsError
from ops.client.client import ApiError, Client, JobChanged, tls_context
from ops.client.progress_bar import wait_with_bar
from ops.client.readers import InputError
from ops.client.writers import OutputError
from ops.embedded import defaults

_KEY = "millrace.key"
INTERRUPTED = 130  # exit status after Ctrl-C, as in shells

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class Number(click.FloatRange):
    """Number in a range; refuses `nan`, which click accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parses an argument."""
        found = super().convert(value, param, ctx)
        if found != found:
            self.fail(f"{value} is no number", param, ctx)
        return found


class JsonObject(click.ParamType[dict[str, Any]]):
    """JSON object."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parses an argument."""
        try:
            found = json.loads(value)
        except ValueError as error:
            self.fail(f"not valid JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail("must be a JSON object", param, ctx)
        return found


def in_words(error: Exception) -> str | None:
    """Returns a message for errors that users can fix; None for others."""
    if isinstance(error, httpx.ConnectError):
        return "no api answers there; start one with `millrace up`, or set its address with --url"
    if isinstance(error, httpx.HTTPError):
        return f"the api: {error}"
    fixable = (SettingsError, ApiError, JobChanged, InputError, OutputError)
    return str(error) if isinstance(error, fixable) else None


def _store_key(context: click.Context, parameter: click.Parameter, key: str | None) -> None:
    context.meta[_KEY] = key


def client_options(*key: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds --url, --json, and the API key under these names."""
    options = (
        click.option("--url", envvar="MILLRACE_URL", help="Address of the api."),
        click.option(
            *key,
            envvar="MILLRACE_API_KEY",
            expose_value=False,
            callback=_store_key,
            help="API key; safer in the environment: MILLRACE_API_KEY.",
        ),
        as_json_option,
    )
    return lambda function: reduce(lambda inner, option: option(inner), reversed(options), function)


client_command = client_options("--api-key", "--key")


def connect(url: str | None) -> Client:
    """Client of the api at that address, or of this configuration's, with the given key."""
    found: Settings = defaults.load()
    context = click.get_current_context()
    url = url or found.url
    verify = tls_context(found) if url.startswith("https:") else True
    client = Client(url, context.meta.get(_KEY), verify)
    context.call_on_close(client.close)
    return client


def await_end(client: Client, job: dict[str, Any], as_json: bool, then: str = "") -> dict[str, Any]:
    """Waits for a job's end, with a progress bar unless JSON is printed.

    Ctrl-C leaves the job running. then: command to suggest after it.
    """
    try:
        return client.wait(job["id"]) if as_json else wait_with_bar(client, job)
    except KeyboardInterrupt:
        back = " && ".join(filter(None, (f"millrace job {job['id']} --follow", then)))
        click.echo(f"\n{job['id']} goes on without you; come back with `{back}`", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def show_job(job: dict[str, Any], as_json: bool) -> None:
    """Prints a job as a line or as JSON."""
    if as_json:
        click.echo(json.dumps(job))
        return
    counts = ", ".join(f"{count} {name}" for name, count in job["counts"].items() if count)
    words = [job["id"], f"{job['model']}@{job['version']}", job["state"], counts, _pace(job)]
    output = job.get("output") or {}
    if output.get("url"):
        words.append(f"{output['url']} {output['state']}")
    errors = filter(None, (job["error"], output.get("error")))
    words += [str(error.get("message") or error) for error in errors]
    click.echo("  ".join(filter(None, words)))


def _pace(job: dict[str, Any]) -> str:
    rate, eta_s = job["progress"]["items_per_s"], job["progress"]["eta_s"]
    if not rate:
        return ""
    left = f", {eta_s[0]:.0f} to {eta_s[1]:.0f} s left" if eta_s else ""
    return f"{rate:g} items/s{left}"


def exit_by_end(job: dict[str, Any]) -> None:
    """Exits with 1 unless a job completed and could write its results."""
    if job["state"] != "completed" or (job.get("output") or {}).get("state") == "failed":
        raise click.exceptions.Exit(1)
