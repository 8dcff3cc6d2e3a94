"""Commands that list, drain and resume workers."""

from typing import Any

import click

from jobs.telemetry import gpu_reading
from jobs.telemetry.gpu_reading import GpuReading
from millrace import Client
from ops.cli.commands.admin.worker_logs import logs
from ops.cli.commands.common import client_command, show, show_list


@click.command(epilog="Example: millrace workers --json")
@client_command
def workers(client: Client, as_json: bool) -> None:
    """Lists workers that live, and those that ended in the last hour."""
    page = client.get("/workers")
    none = "no workers; start one: `millrace worker`, or all of the platform with `millrace up`"
    show_list(page, map(line, page["data"]), as_json, none)


def _verb(name: str, route: str, help: str) -> click.Command:
    @click.command(name, help=help, epilog=f"Example: millrace worker {name} 12")
    @click.argument("id", type=click.IntRange(1))
    @client_command
    def run(client: Client, id: int, as_json: bool) -> None:
        """Calls the route."""
        worker = client.request("POST", f"/workers/{id}/{route}")
        show(worker, line(worker), as_json)

    return run


#: Commands of the group `millrace worker`.
VERBS = (
    _verb("drain", "drain", "Stops a worker from claiming; it stays alive until it is resumed."),
    _verb("resume", "undrain", "Ends the draining or the quarantine of a worker: its supervisor "
          "starts another."),
    logs,
)  # fmt: skip


def line(worker: dict[str, Any]) -> str:
    """Describes a worker in a line."""
    ended = worker["state"] in ("lost", "stopped", "quarantined")
    held = () if ended else worker["models"]
    models = ",".join(f"{one['model']}:{one['state']}" for one in held)
    asked = worker["drain_asked"] and worker["state"] != "quarantined"
    error = worker.get("device_error") or ""
    reclaimed = f"reclaimed by {by}" if (by := worker.get("reclaimed_by")) else ""
    notes = [worker["died"] or "", reclaimed, "drain asked" if asked else "", error]
    kind, price = worker.get("device_kind") or "", worker.get("price") or 1.0
    device = [worker["device"], kind if kind != worker["device"] else ""]
    device.append(f"price {price:g}" if price != 1.0 else "")
    device.append("spot" if worker.get("spot_notice_s") else "")
    device.append(_gpu(gpu_reading.of_details(worker)))
    words = str(worker["id"]), worker["name"], worker["pool"], *device, worker["state"]
    return "  ".join(filter(None, (*words, *notes, models)))


def _gpu(gpu: GpuReading | None) -> str:
    """Describes activity, throttling and errors of a GPU; nothing where nothing is known."""
    if gpu is None:
        return ""
    active, running = gpu.sm_activity, gpu.kernel_activity
    words = [f"SMs {active:.0%} active" if active is not None else ""]
    if active is None and running is not None:
        words = [f"kernel {running:.0%} of the time"]
    return ", ".join(filter(None, (*words, *(gpu.throttling or ()), *gpu.errors)))
