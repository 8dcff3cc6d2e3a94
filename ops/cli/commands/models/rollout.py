"""Commands of rollouts."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

import click

from jobs.views import rollout_figures
from millrace import Client
from ops.cli.commands.common import JsonObject, client_command, show, show_list

_BAR = 20  # characters


@click.group(epilog="Example: millrace rollout start minilm 2")
def rollout() -> None:
    """Rolls a version of a model out by steps, beside the one before."""


@rollout.command(epilog="Example: millrace rollout start minilm 2 --steps 5,50,100")
@click.argument("model")
@click.argument("version")
@click.option("--stable", default="", help="Version to compare with; default: alias `stable`.")
@click.option("--steps", default="", metavar="PERCENTS", help="Such as 1,5,10,25,50,100.")
@click.option(
    "--sticky", type=click.Choice(["tenant", "user"]),
    help="Callers that stay in their lane, and are its unit.",
)  # fmt: skip
@click.option(
    "--policy", type=JsonObject(), default="{}", help="Limits that differ from the defaults."
)
@client_command
def start(
    client: Client, model: str, version: str, stable: str, steps: str, sticky: str | None,
    policy: dict[str, Any], as_json: bool,
) -> None:  # fmt: skip
    """Starts the rollout of VERSION of MODEL."""
    if steps:
        policy = {**policy, "steps": [_percent(step) for step in steps.split(",")]}
    body = {"model": model, "canary": version, "stable": stable, "sticky": sticky or ""}
    made = client.request("POST", "/rollouts", json={**body, "policy": policy})
    show(made, line(made), as_json)


@rollout.command(epilog="Example: millrace rollout status minilm")
@click.argument("name", metavar="[MODEL|ID]", default="")
@client_command
def status(client: Client, name: str, as_json: bool) -> None:
    """Lists rollouts, or shows one: its steps, both lanes, evidence, costs, history."""
    if name:
        found = client.get(f"/rollouts/{name}")
        show(found, _report(found), as_json)
    else:
        page = client.get("/rollouts")
        none = "no rollouts yet; start one: `millrace rollout start MODEL VERSION`"
        show_list(page, map(line, page["data"]), as_json, none)


def _verb(name: str, help: str) -> None:
    @rollout.command(name, help=help, epilog=f"Example: millrace rollout {name} minilm")
    @click.argument("rollout", metavar="MODEL|ID")
    @click.option("--reason", default="", help="Written into its events and the audit log.")
    @client_command
    def run(client: Client, rollout: str, reason: str, as_json: bool) -> None:
        """Calls the route."""
        found = client.request("POST", f"/rollouts/{rollout}/{name}", json={"reason": reason})
        show(found, line(found), as_json)


_verb("hold", "Holds a rollout at its step; guardrails still roll it back.")
_verb("resume", "Lets a rollout that is held go on, and accepts its growth of cost.")
_verb("promote", "Gives the canary all calls, and makes it the stable version.")
_verb("rollback", "Gives the stable version all calls again.")


def line(found: dict[str, Any]) -> str:
    """Describes a rollout in a line."""
    versions = f"{found['model']} {found['stable']} to {found['canary']}"
    state = f"{found['state']} at {found['percent']:g} %"
    return "  ".join(filter(None, (found["id"], versions, state, found["reason"])))


def _report(found: dict[str, Any]) -> Iterator[str]:
    """Yields a rollout with its figures and events."""
    steps = found["policy"]["steps"]
    shown = (f"[{one:g} %]" if n == found["step"] else f"{one:g} %" for n, one in enumerate(steps))
    yield line(found)
    yield f"steps: {'  '.join(shown)}"
    if waits_for := found.get("waits_for"):
        yield f"waits for: {waits_for}"
    yield from _figures(found)
    yield from ("", "history")
    for event in reversed(found["events"]):
        who = event.get("actor") or "-"
        yield f"  {event['at']}  {event['act']:9}  {who}  {event['reason']}"


def _figures(found: dict[str, Any]) -> Iterator[str]:
    figures, policy = found.get("figures", {}), found["policy"]
    rows = rollout_figures.lane_rows(figures)
    if not rows:
        yield "no figures yet: a keeper reports them once the canary has launches"
        return
    yield ""
    yield from _table([("lanes", *rollout_figures.LANES), *map(astuple, rows)])
    yield from ("", "evidence against the canary")
    for one in rollout_figures.evidence_rows(figures):
        filled = round(one.part * _BAR)
        bar = "#" * filled + "." * (_BAR - filled)
        yield f"  {one.name:8} [{bar}] {one.value:,.3g}, rolls back at {one.alarm_at:,.0f}"
    yield from ("", "costs of the canary over the control's")
    costs = rollout_figures.cost_rows(figures, policy)
    for cost in costs:
        bounds = f"held above {cost.hold:+.0%}, rolled back above {cost.limit:+.0%}"
        yield f"  {cost.title}: {cost.text}; {bounds}"
    if not costs:
        yield "  known from 100 launches of each lane on"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()


def _percent(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no number of percent", param_hint="--steps"
        ) from None
