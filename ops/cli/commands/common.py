"""What every command that talks to an api shares."""

import json
from collections.abc import Callable
from typing import Any

import click
import httpx

from jobs.settings import Settings, SettingsError
from ops.client.client import Changed, Client, Refused, trusting
from ops.client.progress_bar import wait_with_bar
from ops.client.readers import Unreadable
from ops.client.writers import Unwritable
from ops.embedded import defaults

_KEY = "millrace.key"
INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""

as_json_option = click.option("--json", "as_json", is_flag=True, help="print JSON")


class Number(click.FloatRange):
    """In a range, where click would take `nan` for one: it is below nothing, and above nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if found != found:
            self.fail(f"{value} is no number", param, ctx)
        return found


class JsonObject(click.ParamType[dict[str, Any]]):
    """A JSON object."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            found = json.loads(value)
        except ValueError as error:
            self.fail(f"not valid JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail("must be a JSON object", param, ctx)
        return found


def in_words(error: Exception) -> str | None:
    """What users can mend, in words; None for what they can't."""
    if isinstance(error, httpx.ConnectError):
        return "no api answers there; start one with `millrace up`, or name it with --url"
    if isinstance(error, httpx.HTTPError):
        return f"the api: {error}"
    mendable = (SettingsError, Refused, Changed, Unreadable, Unwritable)
    return str(error) if isinstance(error, mendable) else None


def client_command(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options --url, --key and --json."""
    function = as_json_option(function)
    function = click.option(
        "--key",
        envvar="MILLRACE_API_KEY",
        expose_value=False,
        callback=_remember,
        help="an API key; the environment keeps it better: MILLRACE_API_KEY",
    )(function)
    return click.option("--url", envvar="MILLRACE_URL", help="the api's address")(function)


def _remember(context: click.Context, parameter: click.Parameter, key: str | None) -> None:
    context.meta[_KEY] = key


def connect(url: str | None) -> Client:
    """The api at that address, or the one of this configuration; with the key that was given."""
    found: Settings = defaults.load()
    context = click.get_current_context()
    url = url or found.url
    verify = trusting(found) if url.startswith("https:") else True
    client = Client(url, context.meta.get(_KEY), verify)
    context.call_on_close(client.close)
    return client


def await_end(client: Client, job: dict[str, Any], as_json: bool, then: str = "") -> dict[str, Any]:
    """Shows a job coming to its end, with a bar unless JSON is wanted. Ctrl-C leaves it running.
    then: the command that would come after that."""
    try:
        return client.wait(job["id"]) if as_json else wait_with_bar(client, job)
    except KeyboardInterrupt:
        back = " && ".join(filter(None, (f"millrace job {job['id']} --follow", then)))
        click.echo(f"\n{job['id']} goes on without you; come back with `{back}`", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def show_job(job: dict[str, Any], as_json: bool) -> None:
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
    """Non-zero where a job that was waited for did not complete, or could not write its results."""
    if job["state"] != "completed" or (job.get("output") or {}).get("state") == "failed":
        raise click.exceptions.Exit(1)
