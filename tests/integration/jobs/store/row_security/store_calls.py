"""Calls of the store's functions, by one tenant about a job of another."""

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from uuid import UUID

from sqlalchemy.exc import NoResultFound

from jobs import ids
from jobs.api_keys import NewKey
from jobs.errors import Conflict
from jobs.identity import Limit
from jobs.intake.idempotency_key import Claim
from jobs.models.builtin_models import SAMPLES
from jobs.models.routing.route import Route, Share
from jobs.store.billing import quota, spend, usage
from jobs.store.conversations import items, rows
from jobs.store.conversations.rows import ConversationRow
from jobs.store.db import Tx
from jobs.store.jobs import (
    copies,
    detail,
    files,
    idempotency,
    insert,
    read,
    responses,
    search,
    transfers,
    verbs,
)
from jobs.store.jobs.read import JobRow, Span
from jobs.store.jobs.responses import NewResponse
from jobs.store.jobs.search import Filter
from jobs.store.monitoring import diagnostics
from jobs.store.monitoring import workers as fleet
from jobs.store.queue import checkpoints, workers
from jobs.store.registry import routes, snapshot, versions
from jobs.store.tenants import api_keys, audit, erasure, limits, stats, tenants
from jobs.store.webhooks import deliveries, endpoints, secrets
from tests.integration.jobs.store.row_security.tenants import ALICE, MALLORY, MARK

StoreCall = Callable[[Tx, JobRow], object]
HERS_TOO = ConversationRow(UUID(int=18), MALLORY, "{}", 0, 7, datetime(2026, 1, 1, tzinfo=UTC))
"""Alice's conversation, as Mallory may make it up."""


def _copied_items(tx: Tx, job: JobRow) -> object:
    mine = replace(job, tenant_id=MALLORY)
    return list(copies.items(tx.engine, mine, unsuccessful=False))


def _result_lines(tx: Tx, job: JobRow) -> object:
    mine = replace(job, tenant_id=MALLORY)
    return _read(read.result_lines(tx.engine, mine, Span(-1, 19, True), "u", None))


def _result_rows(tx: Tx, job: JobRow) -> object:
    mine = replace(job, tenant_id=MALLORY)
    return _read(read.result_rows(tx.engine, mine, Span(-1, 19, True), None))


def _read(results: Iterator[object]) -> object:
    try:
        return list(results)
    except Conflict:
        return None


def _one(tx: Tx, id: UUID) -> object:
    try:
        return read.one(tx, MALLORY, id)
    except NoResultFound:
        return None


KEY = UUID(int=7)  # Alice's


def _new_job() -> tuple[insert.NewJob, insert.JobItems]:
    new = insert.NewJob(
        ids.new(), MALLORY, model=SAMPLES.resolve("echo"), custom_ids=False, expires_in_s=None
    )
    rows = io.BytesIO(f'{new.id}\t{MALLORY}\t0\t\\N\t\\N\t\\N\t"x"\n'.encode())
    return new, insert.JobItems(rows, [0, 1])


HERS = Claim(MALLORY, "key", b"mallory")
STORE_CALLS: dict[str, StoreCall] = {
    "audit.record": lambda tx, job: audit.record(
        tx, tenant=MALLORY, actor="m", act="x", target="y", request_id="req_2"
    ),
    "audit.page": lambda tx, job: audit.page(tx, MALLORY, after=None, limit=100),
    "idempotency.lock_batch": lambda tx, job: idempotency.lock_batch(tx, MALLORY, MARK),
    "idempotency.find_batch": lambda tx, job: idempotency.find_batch(tx, MALLORY, MARK, "openai"),
    "erasure.begin": lambda tx, job: erasure.begin(tx, MALLORY),
    "erasure.remaining": lambda tx, job: erasure.remaining(tx, MALLORY),
    "endpoints.close_breaker": lambda tx, job: endpoints.close_breaker(
        tx, (MALLORY, job.webhook_url)
    ),
    "copies.items": _copied_items,
    "files.delete": lambda tx, job: files.delete(tx, MALLORY, UUID(int=15)),
    "files.abandon": lambda tx, job: files.abandon(tx, MALLORY, UUID(int=15)),
    "files.get": lambda tx, job: files.get(tx, MALLORY, UUID(int=15)),
    "files.reserve": lambda tx, job: files.reserve(
        tx, MALLORY, ids.new(), purpose="x", filename="x", key="x", key_id="", within_s=1
    ),
    "files.complete": lambda tx, job: files.complete(
        tx, MALLORY, UUID(int=15), bytes=1, sha256=b"x", expires_in_s=None
    ),
    "files.page": lambda tx, job: files.page(tx, MALLORY, purpose=None, after=None, limit=9),
    "files.lock_upload": lambda tx, job: files.lock_upload(tx, MALLORY, b"x"),
    "files.find_upload": lambda tx, job: files.find_upload(
        tx, MALLORY, purpose="batch", filename=MARK, sha256=b"\0", key_id="", within_s=3e9
    ),
    "checkpoints.read_item": lambda tx, job: checkpoints.read_item(tx, job.id, 0),
    "responses.store": lambda tx, job: responses.store(
        tx, NewResponse(ids.new(), MALLORY, UUID(int=17), b"{}", b"[]", b"{}"), 1
    ),
    "responses.get": lambda tx, job: responses.get(tx, MALLORY, UUID(int=17)),
    "responses.chain": lambda tx, job: responses.chain(tx, MALLORY, UUID(int=17)),
    "responses.delete": lambda tx, job: responses.delete(tx, MALLORY, UUID(int=17)),
    "rows.create": lambda tx, job: rows.create(tx, MALLORY, ids.new(), b"{}", 1),
    "rows.get": lambda tx, job: rows.get(tx, MALLORY, HERS_TOO.id),
    "rows.set_metadata": lambda tx, job: rows.set_metadata(tx, MALLORY, HERS_TOO.id, b"{}", 1),
    "rows.extend": lambda tx, job: rows.extend(tx, HERS_TOO, 1, items=1, size=1),
    "rows.delete": lambda tx, job: rows.delete(tx, MALLORY, HERS_TOO.id),
    "items.append": lambda tx, job: items.append(tx, HERS_TOO, {"x": b"x"}, 1),
    "items.page": lambda tx, job: items.page(tx, MALLORY, HERS_TOO.id),
    "items.get": lambda tx, job: items.get(tx, MALLORY, HERS_TOO.id, MARK),
    "items.present": lambda tx, job: items.present(tx, MALLORY, HERS_TOO.id, [MARK]),
    "items.remove": lambda tx, job: items.remove(tx, MALLORY, HERS_TOO.id, MARK),
    "items.add_turn": lambda tx, job: items.add_turn(tx, MALLORY, HERS_TOO.id, ids.new()),
    "items.turns": lambda tx, job: items.turns(tx, MALLORY, HERS_TOO.id),
    "items.end_turn": lambda tx, job: items.end_turn(tx, MALLORY, HERS_TOO.id, UUID(int=17)),
    "limits.get": lambda tx, job: limits.get(tx, MALLORY),
    "limits.put": lambda tx, job: limits.put(tx, MALLORY, [Limit(job_items=1)]),
    "spend.check_cap": lambda tx, job: spend.check_cap(tx, MALLORY),
    "spend.cap_reached": lambda tx, job: spend.cap_reached(tx, MALLORY),
    "quota.check": lambda tx, job: quota.check(tx, MALLORY, [Limit(queued_items=1)], "echo", 1, 1),
    "quota.check_file": lambda tx, job: quota.check_file(tx, MALLORY, [Limit(stored_bytes=1)], 1),
    "spend.endpoint": lambda tx, job: spend.endpoint(tx, MALLORY),
    "spend.set_endpoint": lambda tx, job: spend.set_endpoint(tx, MALLORY, None),
    "usage.sums": lambda tx, job: usage.sums(
        tx, MALLORY, ("model",), date(2000, 1, 1), date(2100, 1, 1)
    ),
    "search.counts": lambda tx, job: search.counts(tx, MALLORY, Filter()),
    "search.matching_ids": lambda tx, job: search.matching_ids(
        tx, MALLORY, Filter(), search.now(tx), after=None, limit=9
    ),
    "search.now": lambda tx, job: search.now(tx),
    "search.page": lambda tx, job: search.page(tx, MALLORY, Filter(text=MARK), limit=9),
    "stats.page": lambda tx, job: stats.page(tx, MALLORY, limit=9),
    "detail.attempts": lambda tx, job: detail.attempts(tx, MALLORY, job.id, 0),
    "detail.error_codes": lambda tx, job: detail.error_codes(tx, MALLORY, job.id),
    "detail.items": lambda tx, job: detail.items(tx, MALLORY, job.id, limit=9),
    "detail.launches": lambda tx, job: detail.launches(tx, MALLORY, job.id, 9),
    "detail.runs": lambda tx, job: detail.runs(tx, MALLORY, job.id, 9),
    "detail.find_seq": lambda tx, job: detail.find_seq(tx, MALLORY, job.id, f"{MARK}-3"),
    "detail.slice_states": lambda tx, job: detail.slice_states(tx, MALLORY, job.id),
    "detail.slices": lambda tx, job: detail.slices(tx, MALLORY, job.id, limit=9),
    "deliveries.by_endpoint": lambda tx, job: deliveries.by_endpoint(tx, MALLORY, 9),
    "deliveries.page": lambda tx, job: deliveries.page(
        tx, MALLORY, state=None, url=None, after=None, limit=9
    ),
    "deliveries.of_tenant": lambda tx, job: deliveries.of_tenant(tx, MALLORY),
    "idempotency.find": lambda tx, job: idempotency.find(tx, HERS),
    "idempotency.lock": lambda tx, job: idempotency.lock(tx, HERS),
    "idempotency.try_lock": lambda tx, job: idempotency.try_lock(tx, HERS),
    "idempotency.store": lambda tx, job: idempotency.store(tx, HERS, job.id, b"{}"),
    "api_keys.create": lambda tx, job: api_keys.create(tx, NewKey(MALLORY)),
    "api_keys.get": lambda tx, job: api_keys.get(tx, MALLORY, KEY),
    "api_keys.page": lambda tx, job: api_keys.page(tx, MALLORY, None, 100),
    "api_keys.rotate": lambda tx, job: api_keys.rotate(tx, MALLORY, KEY, 0.0)[0],
    "api_keys.revoke": lambda tx, job: api_keys.revoke(tx, MALLORY, KEY),
    "tenants.get": lambda tx, job: tenants.get(tx, MALLORY),
    "tenants.page": lambda tx, job: tenants.page(tx, MALLORY, "", 100),
    "tenants.put": lambda tx, job: tenants.put(
        tx, MALLORY, weight=9.0, soft_cap=None, hard_cap=None
    ),
    "tenants.is_erased": lambda tx, job: tenants.is_erased(tx, MALLORY),
    "tenants.terms": lambda tx, job: tenants.terms(tx, MALLORY).limits,
    "read.owner": lambda tx, job: read.owner(tx, job.id),
    "read.get": lambda tx, job: read.get(tx, MALLORY, job.id),
    "detail.item": lambda tx, job: detail.item(tx, MALLORY, job.id, 0),
    "read.one": lambda tx, job: _one(tx, job.id),
    "read.result_lines": _result_lines,
    "read.result_rows": _result_rows,
    "read.span": lambda tx, job: read.span(
        tx, MALLORY, job.id, 20, after=-1, gaps=True, outcome="succeeded", limit=5
    ).until == 4 or None,
    "read.get_many": lambda tx, job: read.get_many(tx, [job.id]),
    "diagnostics.error_counts": lambda tx, job: diagnostics.error_counts(tx, job.id, MALLORY),
    "diagnostics.count_own_ahead": lambda tx, job: diagnostics.count_own_ahead(tx, job) or None,
    "diagnostics.count_others_ahead": lambda tx, job: (
        diagnostics.count_others_ahead(tx, job) or None
    ),
    "diagnostics.locks": lambda tx, job: diagnostics.locks(tx).waiting or None,
    "diagnostics.observations": lambda tx, job: diagnostics.observations(tx, 60).receivers,
    "diagnostics.open_versions": lambda tx, job: diagnostics.open_versions(tx, job.id, MALLORY),
    "diagnostics.slice_counts": lambda tx, job: (
        diagnostics.slice_counts(tx, job.id, MALLORY).ready or None
    ),
    "insert.insert_job": lambda tx, job: insert.insert_job(tx, *_new_job()),
    "insert.insert_jobs": lambda tx, job: insert.insert_jobs(tx, [_new_job()]),
    "insert.copy_items": lambda tx, job: insert.copy_items(tx, [_new_job()]),
    **{
        f"verbs.{verb.__name__}": partial(lambda verb, tx, job: verb(tx, job.id, MALLORY), verb)
        for verb in (
            verbs.cancel, verbs.delete, verbs.end_cancelled, verbs.pause, verbs.resume, verbs.retry
        )
    },
    "transfers.insert_validating": lambda tx, job: transfers.insert_validating(
        tx, insert.SubmittedJob(ids.new(), MALLORY, source="{}")
    ),
    "secrets.insert_secret": lambda tx, job: secrets.insert_secret(
        tx, MALLORY, b"m", shown=True
    ),
    "secrets.active": lambda tx, job: secrets.active(tx, MALLORY),
    "secrets.lock": lambda tx, job: secrets.lock(tx, MALLORY),
    "secrets.mark_shown": lambda tx, job: secrets.mark_shown(tx, 1),
    "secrets.tenants_after": lambda tx, job: secrets.tenants_after(tx, "", 10),
    "secrets.of_tenants": lambda tx, job: secrets.of_tenants(tx, [ALICE]),
    "secrets.replace_sealed": lambda tx, job: secrets.replace_sealed(tx, {1: b"other"}),
    "secrets.retire": lambda tx, job: secrets.retire(tx, MALLORY, 0.0),
    "deliveries.of_job": lambda tx, job: deliveries.of_job(tx, MALLORY, job.id),
    "deliveries.redeliver": lambda tx, job: deliveries.redeliver(tx, MALLORY, job.id),
    "read.running": lambda tx, job: list(read.running(tx, MALLORY, 9)),
    "read.open_states": lambda tx, job: read.open_states(tx, MALLORY),
    "monitoring.workers.page": lambda tx, job: fleet.page(tx),
    "monitoring.workers.one": lambda tx, job: fleet.one(tx, 1),
    "monitoring.workers.held": lambda tx, job: fleet.held(tx, [1]),
    "monitoring.workers.launches": lambda tx, job: fleet.launches(tx, [1], 9),
    "monitoring.workers.request_drain": lambda tx, job: fleet.request_drain(tx, 4711, True),
    "queue.workers.model_statuses": lambda tx, job: workers.model_statuses(tx, 60),
    "routes.all_of": lambda tx, job: routes.all_of(tx),
    "routes.get": lambda tx, job: routes.get(tx, MARK, ALICE),
    "routes.put": lambda tx, job: routes.put(
        tx, Route("other", (Share("1", 100),), MALLORY), "mallory"
    ),
    "routes.remove": lambda tx, job: routes.remove(tx, MARK, ALICE),
    "snapshot.read": lambda tx, job: snapshot.read(tx),
    "versions.unfinished_jobs": lambda tx, job: versions.unfinished_jobs(tx, MARK, "1"),
}  # fmt: skip
"""Each function of the store that the api calls, as Mallory calls it about Alice's job."""

NO_QUERIES = {
    # By a credential, before anybody knows whose it is:
    "api_keys.find", "api_keys.any_key", "api_keys.record_use",
    # By the random id of a session, of nobody's rows:
    "ended_sessions.add", "ended_sessions.has_ended",
    "search.Filter", "search.MOST_COUNTED", "read.RECENT_S", "read.Span", "insert.NewJob",
    "read.TRACEBACK", "read.TRACEBACK_OF",
    "insert.SubmittedJob", "insert.JobItems", "idempotency.StoredResponse", "quota.reserve",
    "notifier.WorkNotifier", "diagnostics.set_statement_timeout", "detail.ListedItem",
    "detail.SliceRun", "verbs.ARCHIVED_BYTES", "monitoring.workers.HeldModel",
    "queue.workers.LaunchRow", "usage.BY", "usage.By",
    "tenancy.EVERYBODY", "tenancy.act", "tenancy.acting", "queue.workers.NOWHERE",
    "queue.workers.LOADING_STATES",
    "queue.workers.ModelStatus", "detail.ItemRow", "observations.ModelObservation",
    "observations.Observations", "observations.LockWait",
    # Versions of models, which no tenant owns; the follower reads for its process:
    "versions.all_of", "versions.get", "versions.in_state", "versions.insert_version",
    "versions.lock_registry", "versions.set_entry", "versions.set_state",
    "aliases.all_of", "aliases.get", "aliases.put", "aliases.remove", "artifacts.get",
    "artifacts.described", "artifacts.signatures_of", "versions.set_probe",
    "follower.RegistryFollower",
    "rollouts.ID_PREFIX", "rollouts.accept_cost", "rollouts.apply", "rollouts.events",
    "rollouts.get", "rollouts.page", "rollouts.start",
    # Pools, which no tenant owns:
    "gauges.workers", "policies.PolicyRow", "policies.EventRow", "policies.add_event",
    "policies.decide", "policies.events", "policies.get", "policies.lock", "policies.page",
    "policies.put", "policies.remove", "policies.set_paused",
    # Figures of models, workers and pools:
    "history.read",
    # Options of a connection:
    "hosts.avoid", "hosts.in_turn", "hosts.prefer",
    "responses.MOST_IN_CHAIN", "responses.NewResponse", "responses.ResponseRow",
}  # fmt: skip
REVEALS = {name for name in STORE_CALLS if name.startswith(("read.", "deliveries."))} | {
    "spend.endpoint", "usage.sums", "limits.get", "files.get", "files.find_upload", "files.page",
    "files.delete",
    "idempotency.find_batch", "audit.page", "api_keys.get", "checkpoints.read_item",
    "responses.get", "responses.chain", "responses.delete", "rows.get", "rows.delete",
    "items.page", "items.get", "items.present", "items.remove", "items.turns",
    "api_keys.page", "tenants.get",
    "tenants.page", "secrets.tenants_after", "secrets.of_tenants",
    "tenants.terms", "search.page", "search.matching_ids", "search.counts", "stats.page",
    "detail.attempts", "detail.items", "detail.runs", "detail.find_seq",
    "detail.slice_states", "detail.slices", "routes.all_of", "routes.get",
}  # fmt: skip
REVEALS -= {"read.open_states", "read.running"}  # Alice's job has ended
