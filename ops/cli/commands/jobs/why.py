"""Command that diagnoses slow or stalled work."""

from typing import Any

import click

from millrace import Client
from ops.cli.commands.common import client_command, show

_MARKS = {"critical": "!!", "warning": "! ", "info": "  "}
_JOBS = ("job_", "batch_", "msgbatch_")


@click.command(epilog="Example: millrace why minilm")
@click.argument("about", required=False, metavar="[CALL|JOB|MODEL]")
@click.argument("seq", required=False, type=click.IntRange(min=0))
@client_command
def why(client: Client, about: str | None, seq: int | None, as_json: bool) -> None:
    """Diagnoses a call (call_…), a job (job_…, or its item SEQ) or a model; operators: all.

    Shows where the time went and what to change.
    """
    diagnosis = _request(client, about or "", seq)
    findings = diagnosis.get("diagnoses", diagnosis.get("why", []))
    words = map(_words, findings) if findings else ["   no findings: it is healthy"]
    show(diagnosis, [_heading(diagnosis), *words], as_json)


def _request(client: Client, about: str, seq: int | None) -> dict[str, Any]:
    if seq is not None and not about.startswith(_JOBS):
        raise click.UsageError("a SEQ is of a job's item: millrace why job_… 17")
    if about.startswith("call_"):
        path = f"/calls/{about}"
    elif about.startswith(_JOBS):
        path = f"/jobs/{about}/why" if seq is None else f"/jobs/{about}/items/{seq}"
    else:
        path = f"/models/{about}/why" if about else "/why"
    return dict(client.get(path))


def _heading(diagnosis: dict[str, Any]) -> str:
    if "diagnoses" in diagnosis:
        return str(diagnosis["about"])
    timing = diagnosis["timing"]
    shown = ", ".join(
        f"{name.removesuffix('_ms')} {value:,.1f} ms"
        for name, value in timing.items()
        if name.endswith("_ms") and value is not None
    )
    what = diagnosis["id"] if "id" in diagnosis else f"item {diagnosis['seq']}"
    return "  ".join(
        filter(None, (what, diagnosis.get("outcome") or diagnosis.get("state"), shown))
    )


def _words(finding: dict[str, Any]) -> str:
    mark, head = _MARKS[finding["severity"]], f"{finding['code']} ({finding['about']})"
    lines = [f"{mark} {head}: {finding['words']}"]
    if finding["advice"]:
        lines.append(f"   → {finding['advice']}")
    return "\n".join(lines)
