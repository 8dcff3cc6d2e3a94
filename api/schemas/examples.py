"""Examples for /openapi.json, by schema."""

import json
from typing import Any

_ID = "01kajf7q5rf0h8zq2m4w6y8a0b"
JOB_ID = f"job_{_ID}"
KEY_ID = f"key_{_ID}"
CALL_ID = f"call_{_ID}"
TENANT = "globex"
MODEL = "minilm"
_WEBHOOK = {"url": "https://globex.example/millrace"}
_AT, _LATER = "2026-11-20T09:00:00.120000Z", "2026-11-20T09:00:05.480000Z"

_JOB = {
    "id": JOB_ID,
    "model": MODEL,
    "version": "1",
    "state": "running",
    "class": "standard",
    "priority": 0,
    "params": {},
    "metadata": {"batch": "monday"},
    "generation": 1,
    "counts": {
        "total": 1000,
        "pending": 300,
        "running": 100,
        "succeeded": 598,
        "failed": 2,
        "cancelled": 0,
        "expired": 0,
    },
    "created_at": _AT,
    "started_at": "2026-11-20T09:00:00.250000Z",
    "finished_at": None,
    "expires_at": "2026-11-21T09:00:00.120000Z",
    "progress": {"items_per_s": 210.5, "eta_s": [1.6, 2.4]},
    "error": None,
    "input": None,
    "output": None,
}
_ITEM = {"custom_id": "a-1", "input": "how do I parse JSON"}
_DELIVERY = {
    "id": f"msg_{_ID}",
    "type": "job.completed",
    "generation": 1,
    "url": _WEBHOOK["url"],
    "state": "delivered",
    "tries": 1,
    "created_at": _AT,
    "delivered_at": _LATER,
    "next_try_at": None,
    "last_status": 204,
    "last_error": None,
}
_SUMS = {
    "succeeded": 998,
    "failed": 2,
    "units": {"tokens": 18340},
    "device_ms": 4750.2,
    "amount": "0.4668",
}
_KEY = {
    "id": KEY_ID,
    "tenant": TENANT,
    "name": "nightly import",
    "hint": "mk_4pQ0",
    "role": "tenant",
    "scopes": ["read", "submit", "infer"],
    "created_at": _AT,
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": _LATER,
    "replaced_by": None,
}
_TERMS = {"weight": 2.0, "soft_cap": 80.0, "hard_cap": 100.0}
_TENANT = {"tenant": TENANT, **_TERMS, "created_at": _AT, "erased_at": None}
_MODEL_STATE = {
    "name": MODEL,
    "version": "1",
    "engine": "minilm",
    "target_ms": 250,
    "unit": "tokens",
    "ready": True,
    "workers": 1,
    "states": {"ready": 1},
    "load_ms": 1840.5,
    "error": None,
}
_WORKER = {
    "id": 12,
    "name": "gpu-3:4711",
    "pool": "default",
    "device": "cuda:0",
    "state": "ready",
    "drain_asked": False,
    "died": None,
    "models": [
        {
            "model": f"{MODEL}@1",
            "state": "ready",
            "memory_mb": 410.5,
            "load_ms": 1840.5,
            "error": None,
        }
    ],
    "started_at": _AT,
    "heartbeat_at": _LATER,
    "ended_at": None,
}

_SATURATED = {
    "code": "device_saturated",
    "severity": "warning",
    "about": f"model:{MODEL}@1",
    "words": f"the devices of {MODEL}@1 are 97 % busy, and the api's CPUs have time to spare (its "
    "loop is 1 ms late): 18 % of its calls miss the target of 250 ms",
    "advice": "more workers of its pool, or a faster device",
    "evidence": {"busy": 0.97, "missed": 0.18, "loop_lag_s": 0.001},
}
_IN_TIME = {
    "code": "call_in_time",
    "severity": "info",
    "about": f"call:{CALL_ID}",
    "words": "answered in 14.2 ms, its target is 250 ms: 0.4 ms in the api and on the way, 3.1 ms "
    "in its lane, 0.8 ms from closing the launch to the device, 9.7 ms on the device, 0.2 ms after "
    "it",
    "advice": "",
    "evidence": {"total_ms": 14.2},
}
_RECORDING = {
    "code": "recording",
    "severity": "info",
    "about": f"job:{JOB_ID}",
    "words": "it spent 212 ms of 394 ms (54 %) for the rest of its slice to be done and recorded "
    "together",
    "advice": "smaller slices (limits.slice_items) are recorded sooner",
    "evidence": {"seconds": 0.212, "total_s": 0.394},
}
_CALL_TIMING = {
    "gateway_ms": 0.2,
    "preprocess_ms": 0.2,
    "queue_ms": 3.1,
    "batch_ms": 0.8,
    "engine_ms": 9.7,
    "post_ms": 0.2,
    "total_ms": 14.2,
    "batch_size": 7,
    "flush": "pace",
}
_MESSAGE_BATCH = {
    "id": f"msgbatch_{_ID}",
    "type": "message_batch",
    "processing_status": "in_progress",
    "request_counts": {
        "processing": 600,
        "succeeded": 398,
        "errored": 2,
        "canceled": 0,
        "expired": 0,
    },
    "created_at": _AT,
    "expires_at": "2026-11-21T09:00:00.120000Z",
    "ended_at": None,
    "cancel_initiated_at": None,
    "archived_at": None,
    "results_url": None,
}
EXAMPLES: dict[str, Any] = {
    "JobWithItems": {
        "model": MODEL,
        "items": [_ITEM, "a text alone is an item too"],
        "metadata": {"batch": "monday"},
        "webhook": _WEBHOOK,
    },
    "Job": _JOB,
    "JobPage": {"data": [_JOB], "next": None},
    "MessageBatch": _MESSAGE_BATCH,
    "MessageBatchPage": {
        "data": [_MESSAGE_BATCH],
        "has_more": False,
        "first_id": _MESSAGE_BATCH["id"],
        "last_id": _MESSAGE_BATCH["id"],
    },
    "ItemState": {
        "seq": 0,
        **_ITEM,
        "params": {},
        "state": "succeeded",
        "outcome": "succeeded",
        "output": [0.0123, -0.0456, 0.0789],
        "error": None,
        "usage": {"tokens": 7},
        "attempts": 1,
        "deliveries": 1,
        "timing": {
            "waiting_ms": 130.4,
            "preprocess_ms": 28.9,
            "queue_ms": 12.1,
            "batch_ms": 0.4,
            "engine_ms": 9.7,
            "record_ms": 212.5,
            "total_ms": 394.0,
            "wait_ms": 12.5,
        },
        "launch": {"worker": 3, "engine_ms": 9.7, "started_at": _AT},
        "why": [_RECORDING],
    },
    "CallRequest": {"model": MODEL, "input": _ITEM["input"], "timeout_ms": 5000},
    "CallResponse": {
        "id": CALL_ID,
        "model": MODEL,
        "version": "1",
        "output": [0.0123, -0.0456, 0.0789],
        "usage": {"tokens": 7},
        "timing": _CALL_TIMING,
    },
    "EndedCall": {
        "id": CALL_ID,
        "tenant": TENANT,
        "model": MODEL,
        "version": "1",
        "job_class": "interactive",
        "outcome": "succeeded",
        "ended_at": _AT,
        "target_ms": 250,
        "timeout_ms": 5000,
        "size": 7,
        "lane": "{}/16",
        "timing": _CALL_TIMING,
        "needed_ms": None,
        "allowed_ms": None,
        "why": [_IN_TIME],
    },
    "Explanation": {"about": f"model:{MODEL}@1", "diagnoses": [_SATURATED]},
    "Delivery": _DELIVERY,
    "DeliveryList": {"data": [_DELIVERY]},
    "Endpoint": {"url": "https://globex.example/usage"},
    "EndpointState": {"url": "https://globex.example/usage", "deliveries": []},
    "SigningSecret": {"secret": "whsec_…", "created_at": _AT, "previous_signs_until": None},
    "Usage": {"data": [{**_SUMS, "model": MODEL, "day": "2026-11-20"}], "total": _SUMS},
    "KeyRequest": {"tenant": TENANT, "name": "nightly import", "expires_in_s": 7_776_000.0},
    "KeyOverlap": {"overlap_s": 3600.0},
    "Key": _KEY,
    "KeyPage": {"data": [_KEY], "next": None},
    "CreatedKey": {"key": "mk_4pQ0…", **_KEY},
    "TenantTerms": _TERMS,
    "Tenant": _TENANT,
    "TenantPage": {"data": [_TENANT], "next": None},
    "Erasure": {
        "tenant": TENANT,
        "erased_at": _AT,
        "complete": False,
        "left": {"open": 0, "jobs": 2, "erasing": 1, "items": 1000, "others": 3},
    },
    "LimitList": {
        "data": [
            {"requests_per_s": 50.0, "queued_items": 1_000_000},
            {"model": MODEL, "calls_in_flight": 8},
        ]
    },
    "AuditPage": {
        "data": [
            {
                "id": 41,
                "at": _AT,
                "tenant": TENANT,
                "actor": KEY_ID,
                "act": "job.cancel",
                "target": JOB_ID,
                "detail": {"was": "running"},
                "request_id": f"req_{_ID}",
            }
        ],
        "next": None,
    },
    "Health": {"status": "ok"},
    "ModelState": _MODEL_STATE,
    "ModelList": {"data": [_MODEL_STATE]},
    "Worker": _WORKER,
    "WorkerList": {"data": [_WORKER]},
    "Problem": {
        "type": "https://millrace.dev/problems/not-found",
        "title": "Not found",
        "status": 404,
        "detail": f"there is no job {JOB_ID}",
        "code": "not_found",
        "retryable": False,
        "request_id": f"req_{_ID}",
    },
}

ITEM_LINES = '{"custom_id": "a-1", "input": "how do I parse JSON"}\n"a text alone is an item too"\n'
METRICS = (
    "# HELP millrace_calls_in_flight Calls of this process that have no answer yet\n"
    "# TYPE millrace_calls_in_flight gauge\n"
    "millrace_calls_in_flight 3.0\n"
)
RESULT_LINES = (
    '{"seq":0,"custom_id":"a-1","outcome":"succeeded","output":[0.0123,-0.0456],"error":null,'
    '"usage":{"tokens":7},"attempts":1}\n'
)
EVENTS = f"id: 1.300.100.running\nevent: job\ndata: {json.dumps(_JOB)}\n\n"
USAGE_CSV = (
    "model,day,succeeded,failed,tokens,device_ms,amount\n"
    "minilm,2026-11-20,998,2,18340,4750.2,0.4668\n"
)
