"""Command `millrace`: each command has an example, and exits non-zero on failure."""

import os
from pathlib import Path
from typing import Any

import click

from ops.cli.lazy_group import LazyGroup

_COMMANDS = {
    "up": ("platform.up", "Runs everything: embedded services, migrations, apis, keeper, workers."),
    "api": ("platform.api", "Serves HTTP; several may run."),
    "worker": (
        "platform.worker",
        "Runs a worker of MILLRACE_POOL on one device; starts it again if it dies, hangs or grows.",
    ),
    "prepare": (
        "platform.worker",
        'Runs workers that prepare items, on CPUs, of models that declare prepare = "pool".',
    ),
    "keeper": ("platform.keeper", "Runs periodic services: nudges, lapsed leases, expiry."),
    "scaler": (
        "platform.scaler",
        "Scales Deployments and StatefulSets in Kubernetes as the autoscaler decides.",
    ),
    "init": (
        "setup.init",
        "Writes a models file with the samples, and a .env with settings, into FOLDER.",
    ),
    "doctor": (
        "setup.doctor",
        "Checks this machine: port, disk, memory, device, services; says what to mend.",
    ),
    "check": ("platform.check", "Shows the configuration and all its problems."),
    "migrate": ("platform.check", "Brings the database's schema up to date."),
    "backup": (
        "setup.backup",
        "Copies the embedded database, its blobs and keys into DIR, a new folder, while jobs run.",
    ),
    "restore": (
        "setup.backup",
        "Brings the backup in DIR into MILLRACE_HOME, which must have no database yet.",
    ),
    "model": ("platform.model", "Checks models before they are served."),
    "simulate": (
        "platform.simulate",
        "Replays arrivals against the scheduler, on a virtual clock.",
    ),
    "plan": (
        "platform.simulate",
        "Finds the number of replicas, by kind of device, and the price.",
    ),
    "history": (
        "platform.simulations.history",
        "Exports what came to this platform, for `plan` and `simulate`.",
    ),
    "demo": (
        "platform.demo",
        "Embeds summaries of Python's library functions, and finds functions by meaning.",
    ),
    "bench": ("platform.bench", "Runs a benchmark of a checkout."),
    "completion": (
        "platform.completion",
        "Prints a script that completes commands and options in SHELL.",
    ),
    "submit": (
        "jobs.submit",
        "Submits SOURCES as one job: files, folders, standard input or S3.",
    ),
    "jobs": ("jobs.jobs", "Lists jobs, the newest first."),
    "job": ("jobs.jobs", "Shows a job."),
    "cancel": ("jobs.jobs", "Cancels a job; its results are kept."),
    "pause": ("jobs.jobs", "Pauses a job."),
    "resume": ("jobs.jobs", "Resumes a paused job."),
    "resubmit": ("jobs.resubmit", "Submits the items of a job again, as a new job."),
    "retry": ("jobs.jobs", "Runs the items of a finished job again that did not succeed."),
    "delete": ("jobs.jobs", "Deletes a finished job, with its items and results, for ever."),
    "results": (
        "jobs.results",
        "Prints a job's results in order, as JSON lines; while it runs, those so far.",
    ),
    "diff": ("jobs.diff", "Compares the results of two finished jobs, or files of results."),
    "infer": (
        "jobs.calls",
        "Makes one call with TEXT and prints its output as JSON; --json prints the whole response.",
    ),
    "calls": (
        "jobs.ended_calls",
        "Lists calls that ended within the last hour, the newest first; `millrace why` explains "
        "one.",
    ),
    "chat": ("jobs.chat", "Talks to MODEL; answers are printed while they are generated."),
    "models": (
        "models.models",
        "Lists model versions, and their state in the workers; its commands change the registry.",
    ),
    "why": (
        "jobs.why",
        "Diagnoses a call (call_…), a job (job_…, or its item SEQ) or a model; operators: all.",
    ),
    "webhooks": ("jobs.webhooks", "Lists the webhook deliveries of a job."),
    "redeliver": (
        "jobs.webhooks",
        "Sends a job's latest webhook again, under the same webhook-id.",
    ),
    "webhook-secret": (
        "jobs.webhooks",
        "Shows the secret that verifies webhooks: once, when it is created.",
    ),
    "webhook-endpoint": (
        "jobs.webhooks",
        "Shows or sets the endpoint that is notified near the soft cap.",
    ),
    "workers": ("admin.workers", "Lists workers that live, and those that ended in the last hour."),
    "rollout": (
        "models.rollout",
        "Rolls a version of a model out by steps, beside the one before.",
    ),
    "scale": (
        "admin.scale",
        "Shows the load of pools, and sets, pauses or stops their autoscaler.",
    ),
    "usage": ("admin.usage", "Sums up usage and its cost."),
    "limits": ("admin.limits", "Shows a tenant's limits, or changes those that are named."),
    "rotate-secret": (
        "admin.secret_key",
        "Encrypts stored secrets again with the first of several keys.",
    ),
    "keys": ("admin.keys", "Manages API keys on the database itself, before anything runs."),
    "tenants": ("admin.tenants", "Lists tenants."),
    "tenant": ("admin.tenants", "Shows a tenant, after changing the given terms."),
    "tenant-erase": ("admin.tenants", "Revokes a tenant's keys, and erases all its data for ever."),
    "tenant-export": (
        "admin.cells",
        "Prints a tenant's terms, keys (hashes), limits, signing secrets and Idempotency-Keys.",
    ),
    "tenant-import": ("admin.cells", "Stores an exported tenant here."),
    "router": (
        "admin.cells",
        "Prints nginx's configuration that sends each tenant to its cell, as FILE declares them.",
    ),
    "audit": (
        "admin.tenants",
        "Shows the audit log, newest first: admin acts, verbs, reads of others' payloads.",
    ),
}


class Cli(LazyGroup):
    """Reports errors in one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command."""
        from ops.cli.errors import reported  # not for the list and for completions
        from ops.cli.setup import dotenv

        dotenv.load(Path(), os.environ)
        with reported():
            return super().invoke(ctx)


@click.group(
    cls=Cli,
    lazy=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="millrace")
def main() -> None:
    """Durable batch inference with a low-latency path for single calls."""
