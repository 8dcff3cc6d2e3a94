"""Rollouts and their events as JSON objects."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from jobs.store.registry.rollouts import EventRow, RolloutRow
from jobs.views.jobs import timestamp


def rollout_object(row: RolloutRow) -> dict[str, Any]:
    """A rollout as operators see it, without its events."""
    return {
        "id": row.shown_id,
        "model": row.name,
        "stable": row.stable,
        "canary": row.canary,
        "state": row.state,
        "step": row.step,
        "percent": row.percent,
        "policy": orjson.loads(row.policy),
        "sticky": row.sticky,
        "reason": row.reason,
        "started_at": timestamp(row.started_at),
        "started_by": row.started_by,
        "step_at": timestamp(row.step_at),
        "ended_at": timestamp(row.ended_at),
    }


def status_object(
    row: RolloutRow, events: Sequence[EventRow], look: Mapping[str, Any]
) -> dict[str, Any]:
    """A rollout with its events and figures.

    look: what a keeper saw last (`act`, `reason`, `figures`); {}: nothing. Without it, and of one
    that has ended, the figures are those of the latest event that has some.
    """
    shown = [event_object(event) for event in events]
    known: dict[str, Any] = next((e["figures"] for e in shown if "lanes" in e["figures"]), {})
    look = {} if row.ended_at else look
    waits = row.state == "running" and look.get("act") == "stay"
    return {
        **rollout_object(row),
        "waits_for": look["reason"] if waits else "",
        "figures": look.get("figures", known),
        "events": shown,
    }


def event_object(row: EventRow) -> dict[str, Any]:
    """An event of a rollout."""
    return {
        "at": timestamp(row.at),
        "act": row.act,
        "actor": row.actor,
        "reason": row.reason,
        "figures": orjson.loads(row.figures),
    }
